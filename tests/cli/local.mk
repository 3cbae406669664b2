## Scripts that run the program.
TESTS += \
    %D%/bad_input.sh \
    %D%/inject.sh \
    %D%/learn.sh \
    %D%/llama.sh \
    %D%/log.sh \
    %D%/program.sh \
    %D%/save.sh \
    %D%/shrink.sh \
    %D%/splits.sh \
    %D%/verified.sh
EXTRA_DIST += \
    %D%/bad_input.sh \
    %D%/inject.sh \
    %D%/learn.sh \
    %D%/llama.sh \
    %D%/log.sh \
    %D%/offload-large.sh \
    %D%/program.sh \
    %D%/run.sh \
    %D%/save.sh \
    %D%/shrink.sh \
    %D%/splits.sh \
    %D%/verified.sh
