"""Private classification among parties that do not trust each other."""
