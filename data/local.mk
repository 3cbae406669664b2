## Data sets that come with the library, and the text of the default run, which
## a program writes.
dist_pkgdata_DATA = %D%/README %D%/digits.csv
nodist_pkgdata_DATA = %D%/stories.txt

noinst_PROGRAMS += %D%/stories
data_stories_SOURCES = \
    %D%/stories.c \
    %D%/stories.h \
    %D%/stories_grammar.c
data_stories_LDADD =

%D%/stories.txt: %D%/stories$(EXEEXT)
	$(AM_V_GEN)%D%/stories >$@.tmp && mv $@.tmp $@
CLEANFILES += %D%/stories.txt

## What PyTorch computed, for the tests; see golden/README.
EXTRA_DIST += %D%/golden
