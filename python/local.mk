## Python files that users copy or import; installed beside the data sets.
dist_pkgdata_DATA += %D%/fsdp_trace.py %D%/trace_format.md \
                     %D%/read_golden.py
EXTRA_DIST += %D%/README
