/** \file offload_file.h  Floor 0, base: files that have no name.
 *
 *  Ranges of a file are handed out in whole pages.  A range given back returns
 *  its room to the disk, and its place in the file serves the next of its size,
 *  so that gradients that come and go at each step do not let the file grow.
 *  Not thread-safe: offload.c holds a lock.
 */
#ifndef FSDP_BASE_OFFLOAD_FILE_H
#define FSDP_BASE_OFFLOAD_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "fsdp/offload.h"

/** One file, of `users` openers and blocks. */
struct fsdp_offload {
    char *directory; /**< as given; owned                                    */
    int fd;
    long users;
    size_t end;           /**< where the file has been used up to            */
    struct range *unused; /**< ranges given back; owned                      */
    size_t num_unused, unused_room;
    struct fsdp_offload *next; /**< of the list of open files                */
};

size_t fsdp_offload_page(void);
/** `bytes` rounded up to pages, at least one. */
size_t fsdp_offload_in_pages(size_t bytes);

/** A file that loses its name at once, for file systems that know no other
 *  nameless ones; -1 and errno. */
int fsdp_offload_file_unnamed(const char *directory);
/** NULL after fsdp_error(). */
fsdp_offload_t *fsdp_offload_file_open(const char *directory);
/** Takes one user away; the last closes the file and frees `file`. */
void fsdp_offload_file_drop(fsdp_offload_t *file);

/** Room for `bytes` (whole pages) at *offset; 0 or errno.  `*zeros`: a file
 *  system without holes keeps what stood there before; false then. */
int fsdp_offload_file_take(fsdp_offload_t *file, size_t bytes, size_t *offset,
                           bool *zeros);
/** Gives the range back. */
void fsdp_offload_file_give(fsdp_offload_t *file, size_t bytes, size_t offset);
/** The range as memory; MAP_FAILED and errno if the system refuses. */
void *fsdp_offload_file_map(const fsdp_offload_t *file, size_t bytes,
                            size_t offset);

#endif
