/** \file tuning.h  Two limits of src/comm that tests make small. */
#ifndef FSDP_COMM_TUNING_H
#define FSDP_COMM_TUNING_H

#include <stddef.h>

/** Most bytes of one MPI message, 2^30; longer ones are cut. */
extern size_t fsdp_comm_piece_bytes;
/** Largest tag in use, at least 1; MPI's own limit at first. */
extern int fsdp_comm_tag_limit;

#endif
