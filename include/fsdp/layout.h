/** \file layout.h  Floor 3, fsdp: which elements of a parameter a rank keeps.
 *
 *  PyTorch: DTensorSpec (placements Shard, _StridedShard, Replicate), and FSDP1's
 *  _ShardParamInfo.
 *
 *  A parameter may be one part of a larger tensor (tensor parallelism, experts;
 *  see parameter.h), and is then cut over the ranks that share it.  A layout
 *  tells for one rank where each element of its buffer belongs, as a list of
 *  runs without gaps.  It is plain data: ranks may send it to each other.
 */
#ifndef FSDP_LAYOUT_H
#define FSDP_LAYOUT_H

#include "fsdp/parameter.h"

typedef enum fsdp_layout_kind {
    FSDP_LAYOUT_WHOLE,  /**< the rank keeps all of it                         */
    FSDP_LAYOUT_CHUNKS, /**< chunks of ceil(n / W) along `dim`; FSDP2          */
    FSDP_LAYOUT_FLAT /**< a range of a flat parameter that is cut; FSDP1    */
} fsdp_layout_kind_t;

typedef struct fsdp_layout {
    fsdp_layout_kind_t kind;
    int ndim;
    size_t shape[FSDP_MAX_DIMS]; /**< of the parameter                        */
    int dim;                     /**< CHUNKS                                  */
    size_t flat_offset; /**< FLAT: its first element in the flat parameter    */
    size_t flat_chunk;  /**< FLAT: elements of the flat parameter per rank    */
    int num_ranks, rank; /**< those that it is cut over                       */
    int part_dim, num_parts, part, part_groups; /**< as in fsdp_parameter_t   */
    bool primary; /**< false: another rank keeps the same and counts it       */
} fsdp_layout_t;

/** Elements that lie one after another in all three of this rank's buffer, the
 *  parameter, and the larger tensor that it is a part of. */
typedef struct fsdp_run {
    size_t local, element, whole, count;
} fsdp_run_t;

/** The layout of a parameter that nobody cuts. */
fsdp_layout_t fsdp_layout_whole(const fsdp_parameter_t *parameter);

/** Elements of the parameter that the rank keeps, without padding. */
size_t fsdp_layout_numel(const fsdp_layout_t *layout);
/** The most that any rank's buffer has, with padding: the same on all ranks. */
size_t fsdp_layout_max_numel(const fsdp_layout_t *layout);
/** Elements of the larger tensor. */
size_t fsdp_layout_whole_numel(const fsdp_layout_t *layout);
/** Steps to the next run; begin with a zeroed one.  False: there is none. */
bool fsdp_layout_next_run(const fsdp_layout_t *layout, fsdp_run_t *run);

/** The parameter's element with which the rank's first run begins; 0 if it keeps
 *  none. */
size_t fsdp_layout_begin(const fsdp_layout_t *layout);

/** Copies the rank's elements to their places in the larger tensor, and from
 *  there; elements of `size` bytes. */
void fsdp_layout_place(const fsdp_layout_t *layout, size_t size,
                       const void *local, void *whole);
void fsdp_layout_take(const fsdp_layout_t *layout, size_t size,
                      const void *whole, void *local);

#endif
