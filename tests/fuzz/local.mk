## Fuzz targets, one for each parser: see fuzz.h.  `make check` runs each over its
## corpus with driver.c; `make fuzz` builds them with libFuzzer in a folder of
## their own and lets them search:
##     make fuzz FUZZ_SECONDS=60          each target so long
##     make fuzz FUZZ_TARGETS='json csv'  those alone
fuzz_targets = \
    %D%/fuzz_bundle \
    %D%/fuzz_checkpoint_index \
    %D%/fuzz_csv \
    %D%/fuzz_hf_config \
    %D%/fuzz_idx \
    %D%/fuzz_json \
    %D%/fuzz_rename \
    %D%/fuzz_safetensors \
    %D%/fuzz_text \
    %D%/fuzz_tokenizer \
    %D%/fuzz_tokens \
    %D%/fuzz_trace \
    %D%/fuzz_weights

check_PROGRAMS += $(fuzz_targets)
check_LTLIBRARIES += libfuzz.la
libfuzz_la_SOURCES = %D%/fuzz.c %D%/fuzz.h
if !FUZZ
libfuzz_la_SOURCES += %D%/driver.c
endif
EXTRA_DIST += %D%/driver.c
libfuzz_la_LIBADD = libfsdp.la
fuzz_link = libfuzz.la libfsdp.la $(FUZZ_ENGINE)

%C%_fuzz_bundle_SOURCES = %D%/fuzz_bundle.c \
    src/cli/golden_check.c src/cli/golden_config.c
%C%_fuzz_bundle_LDADD = $(fuzz_link)
%C%_fuzz_checkpoint_index_LDADD = $(fuzz_link)
%C%_fuzz_csv_LDADD = $(fuzz_link)
%C%_fuzz_hf_config_LDADD = $(fuzz_link)
%C%_fuzz_idx_LDADD = $(fuzz_link)
%C%_fuzz_json_LDADD = $(fuzz_link)
%C%_fuzz_rename_LDADD = $(fuzz_link)
%C%_fuzz_safetensors_LDADD = $(fuzz_link)
%C%_fuzz_text_LDADD = $(fuzz_link)
%C%_fuzz_tokenizer_LDADD = $(fuzz_link)
%C%_fuzz_tokens_LDADD = $(fuzz_link)
%C%_fuzz_trace_LDADD = $(fuzz_link)
%C%_fuzz_weights_LDADD = $(fuzz_link)
TESTS += %D%/corpus.sh
EXTRA_DIST += %D%/corpus.sh %D%/fuzz.sh %D%/corpus

fuzz:
	FUZZ_TARGETS='$(FUZZ_TARGETS)' FUZZ_SECONDS='$(FUZZ_SECONDS)' \
	CC='$(CC)' srcdir='$(abs_srcdir)' $(SHELL) $(srcdir)/%D%/fuzz.sh
.PHONY: fuzz
