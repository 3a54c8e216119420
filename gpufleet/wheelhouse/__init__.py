"""The controller's wheelhouse: everything a runtime is made of, fetched from outside once and kept by its hash."""
