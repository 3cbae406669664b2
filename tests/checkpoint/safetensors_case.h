/** \file safetensors_case.h  A folder for one file, and a file of odd tensors. */
#ifndef SAFETENSORS_CASE_H
#define SAFETENSORS_CASE_H

#include "fsdp/safetensors.h"

enum { MANY = 8, ALL_BYTES = 51 };

extern char folder[64], path[128];
extern const fsdp_safetensors_entry_t many[MANY];
/** Bytes of each: elements times bytes of an element. */
extern const uint64_t bytes_of[MANY];

/** Before and after each test: the folder, empty but for `path`. */
void make_folder(void);
void remove_folder(void);
int files_in_folder(void);

/** Byte `i` of the data. */
unsigned char byte_at(size_t i);
/** Writes `path` with the metadata k: v"newline and "": "", so many bytes at a
 *  time; gives up at the first failure, which is returned. */
fsdp_status_t write_many(size_t piece);

#endif
