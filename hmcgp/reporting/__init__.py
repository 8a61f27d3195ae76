"""Results for people and for arviz: diagnostics, export, saving."""
