"""The lab: real boxes (systemd, sshd, apt) on one machine, for demo and tests; the product does not import it."""
