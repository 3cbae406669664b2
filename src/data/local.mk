## src/data: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES += \
    %D%/csv.c \
    %D%/dataset.c %D%/dataset.h \
    %D%/draw.c \
    %D%/idx.c \
    %D%/text.c \
    %D%/tokenizer.h \
    %D%/tokenizer_bpe.c \
    %D%/tokenizer_encode.c \
    %D%/tokenizer_pattern.c \
    %D%/tokenizer_read.c %D%/tokenizer_read.h \
    %D%/tokenizer_read_member.c \
    %D%/tokenizer_read_model.c \
    %D%/tokenizer_read_pieces.c \
    %D%/tokenizer_vocab.c \
    %D%/tokens.c \
    %D%/utf8.c %D%/utf8.h
