"""pyinfra operations: they carry a plan out, and decide nothing."""
