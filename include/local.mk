## The public headers.  tests/check-floors.sh complains of one left out.
include_HEADERS =
fsdpincludedir  = $(includedir)/fsdp
fsdpinclude_HEADERS = \
    %D%/fsdp/clock.h \
    %D%/fsdp/comm.h \
    %D%/fsdp/dtype.h \
    %D%/fsdp/exact_sum.h \
    %D%/fsdp/fault.h \
    %D%/fsdp/memory.h \
    %D%/fsdp/random.h \
    %D%/fsdp/status.h \
    %D%/fsdp/tensor.h
