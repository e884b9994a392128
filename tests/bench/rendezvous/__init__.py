"""How long a rendezvous takes: of our agents on one barrier, and of torchrun's c10d."""
