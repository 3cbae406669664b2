#include "checkpoint/index.h"

#include "base/grow.h"
#include "fsdp/memory.h"

/* ---- runs --------------------------------------------------------------- */

/* Does the run go on where the last ones left off, evenly spaced? */
static bool
extends(const fsdp_index_run_t *last, uint64_t begin, uint64_t count)
{
    if (count != last->count)
        return false;
    if (last->repeat == 1)
        return begin > last->begin;
    return begin == last->begin + last->repeat * last->stride;
}

fsdp_index_piece_t
fsdp_index_piece_of(const fsdp_layout_t *layout, int file)
{
    fsdp_index_piece_t piece = {.file = file};
    fsdp_run_t run = {0};
    size_t room = 0;
    while (fsdp_layout_next_run(layout, &run)) {
        fsdp_index_run_t *last =
            piece.num_runs > 0 ? &piece.run[piece.num_runs - 1] : NULL;
        piece.numel += run.count;
        if (last != NULL && extends(last, run.whole, run.count)) {
            if (last->repeat == 1)
                last->stride = run.whole - last->begin;
            last->repeat++;
            continue;
        }
        piece.run = fsdp_grow(FSDP_MEM_OTHER, piece.run, piece.num_runs, &room,
                              4, sizeof *piece.run);
        piece.run[piece.num_runs++] =
            (fsdp_index_run_t){run.whole, run.count, 0, 1};
    }
    return piece;
}

static void
free_parameter(fsdp_index_parameter_t *parameter)
{
    for (size_t i = 0; i < parameter->num_pieces; i++)
        fsdp_free(parameter->piece[i].run);
    fsdp_free(parameter->piece);
    fsdp_free(parameter->name);
}

void
fsdp_index_free(fsdp_index_t *index)
{
    for (int s = 0; s < FSDP_INDEX_MAX_STATES; s++)
        fsdp_free(index->state[s]);
    for (size_t i = 0; i < index->num_files; i++)
        fsdp_free(index->file[i].name);
    for (size_t i = 0; i < index->num_parameters; i++)
        free_parameter(&index->parameter[i]);
    fsdp_free(index->file);
    fsdp_free(index->parameter);
    fsdp_json_destroy(&index->document);
    *index = (fsdp_index_t){0};
}

/* ---- writing ------------------------------------------------------------ */

static void
write_files(fsdp_json_writer_t *w, const fsdp_index_t *index)
{
    fsdp_json_key(w, "files");
    fsdp_json_open_array(w);
    for (size_t i = 0; i < index->num_files; i++) {
        const fsdp_index_file_t *file = &index->file[i];
        fsdp_json_open_object(w);
        fsdp_json_put_string(w, "name", file->name);
        fsdp_json_put_integer(w, "bytes", (int64_t)file->bytes);
        fsdp_json_put_hash(w, "xxh3_64", file->checksum);
        fsdp_json_close_object(w);
    }
    fsdp_json_close_array(w);
}

void
fsdp_index_runs_write(const fsdp_index_piece_t *piece, fsdp_json_writer_t *w)
{
    fsdp_json_key(w, "runs");
    fsdp_json_open_array(w);
    for (size_t i = 0; i < piece->num_runs; i++) {
        const fsdp_index_run_t *r = &piece->run[i];
        fsdp_json_open_array(w);
        fsdp_json_integer(w, (int64_t)r->begin);
        fsdp_json_integer(w, (int64_t)r->count);
        fsdp_json_integer(w, (int64_t)r->stride);
        fsdp_json_integer(w, (int64_t)r->repeat);
        fsdp_json_close_array(w);
    }
    fsdp_json_close_array(w);
}

static void
write_piece(fsdp_json_writer_t *w, const fsdp_index_piece_t *piece)
{
    fsdp_json_open_object(w);
    fsdp_json_put_integer(w, "file", piece->file);
    fsdp_index_runs_write(piece, w);
    fsdp_json_close_object(w);
}

static void
write_parameter(fsdp_json_writer_t *w, const fsdp_index_parameter_t *parameter)
{
    fsdp_json_open_object(w);
    fsdp_json_put_string(w, "name", parameter->name);
    fsdp_json_put_string(w, "dtype", fsdp_dtype_name(parameter->dtype));
    fsdp_json_key(w, "shape");
    fsdp_json_open_array(w);
    for (int d = 0; d < parameter->ndim; d++)
        fsdp_json_integer(w, (int64_t)parameter->shape[d]);
    fsdp_json_close_array(w);
    fsdp_json_put_integer(w, "optimizer_step", parameter->optimizer_step);
    fsdp_json_key(w, "pieces");
    fsdp_json_open_array(w);
    for (size_t i = 0; i < parameter->num_pieces; i++)
        write_piece(w, &parameter->piece[i]);
    fsdp_json_close_array(w);
    fsdp_json_close_object(w);
}

fsdp_json_writer_t *
fsdp_index_write(const fsdp_index_t *index, const char *const (*metadata)[2],
                 size_t num_metadata)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_object(w);
    fsdp_json_put_string(w, "format", "libfsdp-checkpoint");
    fsdp_json_put_integer(w, "version", FSDP_INDEX_VERSION);
    fsdp_json_put_integer(w, "step", index->step);
    fsdp_json_put_integer(w, "world_size", index->world_size);
    fsdp_json_key(w, "optimizer_states");
    fsdp_json_open_array(w);
    for (int s = 0; s < FSDP_INDEX_MAX_STATES && index->state[s] != NULL; s++)
        fsdp_json_string(w, index->state[s]);
    fsdp_json_close_array(w);
    fsdp_json_key(w, "metadata");
    fsdp_json_open_object(w);
    for (size_t i = 0; i < num_metadata; i++)
        fsdp_json_put_string(w, metadata[i][0], metadata[i][1]);
    fsdp_json_close_object(w);
    write_files(w, index);
    fsdp_json_key(w, "parameters");
    fsdp_json_open_array(w);
    for (size_t i = 0; i < index->num_parameters; i++)
        write_parameter(w, &index->parameter[i]);
    fsdp_json_close_array(w);
    fsdp_json_close_object(w);
    return w;
}
