## Suites of src/data, one word each: a suite %D%/test_x is built from
## %D%/test_x.c alone.  See tests/local.mk.
suites += \
    %D%/test_data \
    %D%/test_draws \
    %D%/test_hard_input \
    %D%/test_tokenizer \
    %D%/test_tokenizer_by_hand \
    %D%/test_tokens

%C%_test_draws_SOURCES = %D%/test_draws.c %D%/files.c %D%/files.h
%C%_test_hard_input_SOURCES = %D%/test_hard_input.c %D%/files.c %D%/files.h
%C%_test_tokenizer_SOURCES = \
    %D%/test_tokenizer.c %D%/tokenizer_file.c %D%/tokenizer_file.h
%C%_test_tokenizer_by_hand_SOURCES = \
    %D%/test_tokenizer_by_hand.c %D%/tokenizer_file.c %D%/tokenizer_file.h
