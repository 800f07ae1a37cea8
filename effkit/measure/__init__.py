"""Measurements of a model and its inputs; knows no pass, no recipe and no source.

| module | measures |
|---|---|
| ``accuracy`` | perplexity, divergence from the baseline, distance of output vectors |
| ``speed`` | time to first token, prefill and decode, sample by sample |
| ``timing`` | one call, synchronised, by a monotonic clock or device events |
| ``memory`` | weight bytes, peaks of host and device, the ledger |
| ``energy`` | joules from NVML or RAPL, else an estimate that says so |
| ``roofline`` | what this machine reaches at best: the denominators of every share |
| ``environment`` | machine and software |
| ``statistics`` | medians, bootstrap intervals, paired ratios |
| ``precision`` | FP32 that is FP32 |
"""
