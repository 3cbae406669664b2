## Suites of src/base, which need no MPI.  See tests/local.mk.
suites += \
    %D%/test_exact_arrays \
    %D%/test_exact_sum \
    %D%/test_grow \
    %D%/test_json \
    %D%/test_json_writer \
    %D%/test_memory \
    %D%/test_names \
    %D%/test_offload \
    %D%/test_random \
    %D%/test_status \
    %D%/test_vmath

TESTS += %D%/check-vectors.sh
EXTRA_DIST += %D%/check-vectors.sh %D%/make_cases.py

serial = %D%/serial.c %D%/serial.h
%C%_test_exact_arrays_SOURCES = %D%/test_exact_arrays.c %D%/bits.h $(serial)
%C%_test_exact_sum_SOURCES = \
    %D%/test_exact_sum.c %D%/bits.h %D%/cases.h $(serial)
%C%_test_grow_SOURCES = %D%/test_grow.c $(serial)
%C%_test_json_SOURCES = %D%/test_json.c $(serial)
%C%_test_json_writer_SOURCES = %D%/test_json_writer.c $(serial)
%C%_test_memory_SOURCES = %D%/test_memory.c $(serial)
%C%_test_names_SOURCES = %D%/test_names.c $(serial)
%C%_test_offload_SOURCES = %D%/test_offload.c $(serial)
%C%_test_random_SOURCES = %D%/test_random.c %D%/cases.h $(serial)
%C%_test_status_SOURCES = %D%/test_status.c $(serial)
%C%_test_vmath_SOURCES = %D%/test_vmath.c %D%/cases.h $(serial)
