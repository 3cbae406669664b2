## Benchmarks: `make bench` builds and runs them, nothing else does.
benches = \
    %D%/bench_gemm \
    %D%/bench_kernels

EXTRA_PROGRAMS += $(benches)
EXTRA_DIST += %D%/measure.h
CLEANFILES += $(benches)
bench_bench_gemm_LDADD = libfsdp.la
bench_bench_kernels_LDADD = libfsdp.la

bench: $(benches)
	@for b in $(benches); do \
	    echo "$$b"; OMP_NUM_THREADS=1 ./$$b || exit 1; \
	done
.PHONY: bench
