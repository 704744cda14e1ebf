"""Running on a SLURM cluster: what submitit and Hydra's launcher leave open."""
