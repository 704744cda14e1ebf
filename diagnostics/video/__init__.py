"""Reading video: which frames there are, choosing some, reading them exactly, perturbing them."""
