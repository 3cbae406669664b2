## Suites of src/optim, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_clip \
    %D%/test_golden \
    %D%/test_grad_scaler \
    %D%/test_half_steps \
    %D%/test_pieces \
    %D%/test_schedule \
    %D%/test_steps

given = %D%/given.c %D%/given.h
%C%_test_clip_SOURCES = %D%/test_clip.c $(given)
%C%_test_golden_SOURCES = %D%/test_golden.c $(given)
%C%_test_steps_SOURCES = %D%/test_steps.c $(given)
%C%_test_grad_scaler_SOURCES = %D%/test_grad_scaler.c $(given)
%C%_test_half_steps_SOURCES = %D%/test_half_steps.c $(given)
