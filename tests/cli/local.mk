## Scripts that run the program.
TESTS += \
    %D%/inject.sh \
    %D%/log.sh \
    %D%/save.sh \
    %D%/verified.sh
EXTRA_DIST += \
    %D%/inject.sh \
    %D%/log.sh \
    %D%/run.sh \
    %D%/save.sh \
    %D%/verified.sh
