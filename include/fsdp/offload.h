/** \file offload.h  Floor 0, base: blocks that live in a file, not in memory.
 *
 *  PyTorch: OffloadPolicy; its CPUOffloadPolicy has the same place in the
 *  program, but moves from a GPU to this machine's memory.
 *
 *  A block is used through a plain pointer, as one of fsdp_calloc() is: it is a
 *  shared mapping of a file, so the system reads what is touched and is not
 *  there, and may write back and forget what was not touched for long.  What is
 *  resident is bounded by asking: fsdp_offload_prefetch() before the use of a
 *  range, fsdp_offload_release() after it.  Both change no value, ever.
 *
 *      state = fsdp_offload_calloc(store, FSDP_MEM_OPTIMIZER, bytes);
 *      fsdp_offload_prefetch(state, bytes);      reading begins
 *      ...                                       use it
 *      fsdp_offload_release(state, bytes);       writing begins, no page resident
 *      fsdp_offload_free(state);
 *
 *  The file has no name: nothing is left in the directory, whatever ends the
 *  run.  Each process has a file of its own.  Any thread may call; nothing here
 *  is collective.
 */
#ifndef FSDP_OFFLOAD_H
#define FSDP_OFFLOAD_H

#include "fsdp/memory.h"
#include "fsdp/status.h"

/** A file below a directory; shared by all who open the same directory. */
typedef struct fsdp_offload fsdp_offload_t;

/** Opens (or shares) this process's file below `directory`.  Errors, with the
 *  remedy in fsdp_error_message(): the directory is missing or no directory, it
 *  may not be written, its disk is full, its file system cannot map or allocate
 *  files.  Ranks may differ in it: agree with fsdp_comm_all_true() before any of
 *  them goes on.  `*offload` is NULL then. */
fsdp_status_t fsdp_offload_open(const char *directory,
                                fsdp_offload_t **offload);
/** Gives up one fsdp_offload_open(); nulls; NULL is allowed.  The file goes with
 *  the last of them and the last block, in either order. */
void fsdp_offload_close(fsdp_offload_t **offload);
/** The directory as it was given. */
const char *fsdp_offload_directory(const fsdp_offload_t *offload);

/** `bytes` bytes of zeros, which begin on a page of their own.  The disk has
 *  room for all of them from now on; ends all ranks with one message if it has
 *  not.  `offload` NULL: fsdp_calloc(), so that callers need not ask. */
void *fsdp_offload_calloc(fsdp_offload_t *offload,
                          fsdp_memory_category_t category, size_t bytes);
/** Gives a block of fsdp_offload_calloc() or fsdp_alloc() back, with its room on
 *  the disk; NULL is allowed. */
void fsdp_offload_free(void *block);

/** The file that `address`, anywhere in a block, lives in, so that what belongs
 *  to a parameter can be put beside it; NULL: memory.  Borrowed. */
fsdp_offload_t *fsdp_offload_of(const void *address);

/** Begins to read what of [address, address + bytes) is not in memory, and does
 *  not wait for it.  Within one block; does nothing for other memory. */
void fsdp_offload_prefetch(const void *address, size_t bytes);
/** Begins to write back what was changed there, does not wait for it, and takes
 *  the pages out of this process's resident memory (the system may keep them in
 *  its cache until it wants their room).  A later use reads them again.  Within
 *  one block; does nothing for other memory. */
void fsdp_offload_release(const void *address, size_t bytes);

/** Bytes in files, by category, and their highest value so far; they do not
 *  count in fsdp_memory_live_bytes().  fsdp_memory_reset_peaks(),
 *  fsdp_memory_live_blocks() and fsdp_memory_override() hold for both kinds. */
size_t fsdp_offload_live_bytes(fsdp_memory_category_t category);
size_t fsdp_offload_peak_bytes(fsdp_memory_category_t category);
/** The sum over all categories at one moment, and its peak. */
size_t fsdp_offload_live_bytes_all(void);
size_t fsdp_offload_peak_bytes_all(void);

/** How much of a long vector is used at a time. */
enum { FSDP_OFFLOAD_PIECE_BYTES = 4 << 20 };

/** Computes elements [begin, begin + count). */
typedef void fsdp_offload_piece_fn_t(void *context, size_t begin, size_t count);

/** Goes through vectors of `numel` elements of `element` bytes side by side, in
 *  pieces, in ascending order: of each vector that is in a file the next piece
 *  is prefetched and the last one released.  If none is there is one piece, of
 *  all.  Vectors may be NULL; 0 elements call nothing. */
void fsdp_offload_in_pieces(const void *const *vector, int num_vectors,
                            size_t numel, size_t element,
                            fsdp_offload_piece_fn_t *fn, void *context);

#endif
