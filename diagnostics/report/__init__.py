"""Figures, the closing table, and the comparison of finished runs. No torch, no pyplot."""
