/** \file files.h  A folder with one file, and the data set it is opened as. */
#ifndef FILES_H
#define FILES_H

#include "fsdp/data.h"

extern char folder[64], path[128];
extern fsdp_dataset_t *data;

/** Before and after each test: the folder, empty but for `path`. */
void make_folder(void);
void remove_folder(void);

/** Writes `path`: some bytes; or `head`, `rows` times `row`, `tail`. */
void put(const char *text, size_t length);
void put_rows(const char *head, const char *row, int rows, const char *tail);

#endif
