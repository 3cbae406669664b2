/** \file tokenizer_file.h  A tokenizer.json of a test. */
#ifndef TOKENIZER_FILE_H
#define TOKENIZER_FILE_H

extern char file_name[64];

/** Before and after each test: its name; the file is taken away. */
void set_up(void);
void tear_down(void);
void put_file(const char *text);

#endif
