"""Private r-N and k-N classification of an analyst's batch by a data owner."""
