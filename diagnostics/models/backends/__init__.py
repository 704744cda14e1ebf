"""Engines that answer: the same request, one file each."""
