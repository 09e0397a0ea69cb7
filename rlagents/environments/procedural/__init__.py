"""Generated multi-turn tasks over the BFCL back-ends: one file per back-end says what its users ask for."""
