## Suites of src/nn, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_differences

nn_case = %D%/nn_case.c %D%/nn_case.h %D%/nn_operators.c
%C%_test_differences_SOURCES = \
    %D%/test_differences.c %D%/differences.h $(nn_case)

suites += %D%/test_golden_operators
%C%_test_golden_operators_SOURCES = \
    %D%/test_golden_operators.c %D%/golden.h $(nn_case) \
    %D%/operator_bounds.c %D%/operator_bounds.h \
    tests/twin/attention.c tests/twin/attention.h tests/twin/attention_bound.c

suites += %D%/test_golden_training
%C%_test_golden_training_SOURCES = \
    %D%/test_golden_training.c %D%/golden.h \
    %D%/training.c %D%/training.h
