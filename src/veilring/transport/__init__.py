"""Messages on a wire: frames, typed messages, and endpoints over memory and mutual TLS."""
