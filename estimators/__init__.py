"""Arithmetic: model shape, GPU and workload to bytes, FLOPs, seconds and dollars."""
