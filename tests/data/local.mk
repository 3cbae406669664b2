## Suites of src/data, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_data
