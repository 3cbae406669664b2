/* Checkpoints: written in one layout, read in others, by as many ranks; kept,
 * replaced, damaged.  (Other numbers of ranks: resume.sh.) */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/model_case.h"
#include "fsdp/checkpoint.h"
#include "fsdp/fully_sharded_data_parallel.h"
#include "mck.h"

static char dir[LONG];

static void
make_dir(void)
{
    set_up();
    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    if (rank == 0)
        mkdir(dir, 0700);
    fsdp_barrier(world, "dir");
}

static void
remove_dir(void)
{
    char command[2 * LONG];
    fsdp_barrier(world, "dir");
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (rank == 0 && system(command) != 0)
        fsdp_die(FSDP_EXIT_FAULT, "cannot remove %s", dir);
    tear_down();
}

/* ---- a run -------------------------------------------------------------- */

typedef struct run {
    fsdp_module_t *model;
    fsdp_optimizer_t *optimizer;
} run_t;

typedef enum kind { WHOLE, SOME, ALL, FLAT, KINDS } kind_t;

static fsdp_module_t *
model_of(kind_t kind)
{
    if (kind != FLAT)
        return make(FSDP_FP32,
                    kind == WHOLE  ? GIVEN_WHOLE
                    : kind == SOME ? GIVEN_SOME
                                   : GIVEN_ALL,
                    value);
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_WHOLE, NULL);
    fsdp1_options_t options = fsdp1_options_default();
    options.mesh = mesh;
    options.use_orig_params = true; /* one is frozen */
    ck_assert(fsdp_fully_sharded_data_parallel(model, &options) == FSDP_OK);
    return model;
}

static run_t
run_of(kind_t kind)
{
    fsdp_adamw_options_t options = fsdp_adamw_options_default();
    options.lr = 0.01;
    run_t run = {.model = model_of(kind)};
    run.optimizer = fsdp_adamw_create(run.model, &options);
    return run;
}

/* Everything of a parameter, put together on rank 0, then known to all. */
static float *
all_of(run_t *run, fsdp_parameter_t *p, int state)
{
    size_t bytes = fsdp_parameter_numel(p) * sizeof(float);
    float *out = fsdp_calloc(FSDP_MEM_OTHER, bytes);
    void *local =
        state < 0 ? NULL : fsdp_optimizer_state(run->optimizer, p, state);
    bool none = state >= 0 && fsdp_optimizer_steps_of(run->optimizer, p) == 0;
    if (!none)
        fsdp_parameter_gather(p, local, world, 0, out);
    fsdp_broadcast(world, "all", FSDP_UINT8, out, bytes, 0);
    return out;
}

static bool
same(run_t *a, run_t *b)
{
    fsdp_parameter_t *p[SPECS], *q[SPECS];
    bool good = true;
    fsdp_module_parameters(a->model, p, SPECS);
    fsdp_module_parameters(b->model, q, SPECS);
    for (int i = 0; i < SPECS; i++) {
        good &= fsdp_optimizer_steps_of(a->optimizer, p[i]) ==
                fsdp_optimizer_steps_of(b->optimizer, q[i]);
        for (int state = -1; state < 2; state++) {
            float *x = all_of(a, p[i], state), *y = all_of(b, q[i], state);
            good &= memcmp(x, y, fsdp_parameter_numel(p[i]) * 4) == 0;
            fsdp_free(x);
            fsdp_free(y);
        }
    }
    return good;
}

/* A step with the gradients that given_backward() makes; every element moves. */
static void
step(run_t *run)
{
    given_backward(run->model, third);
    fsdp_optimizer_step(run->optimizer);
    fsdp_optimizer_zero_grad(run->optimizer);
}

static void
end(run_t *run)
{
    fsdp_optimizer_destroy(&run->optimizer);
    fsdp_module_destroy(&run->model);
}

static const char *const metadata[][2] = {{"seed", "42"}, {"data", "text"}};

static fsdp_status_t
save(run_t *run, long number, int keep)
{
    return fsdp_checkpoint_save(dir, number, run->model, run->optimizer, world,
                                metadata, 2, keep);
}

static fsdp_status_t
load(const char *from, run_t *run)
{
    fsdp_checkpoint_t *c;
    fsdp_status_t status = fsdp_checkpoint_open(from, world, &c);
    if (status == FSDP_OK)
        status = fsdp_checkpoint_load(c, run->model, run->optimizer);
    if (c != NULL)
        fsdp_checkpoint_close(&c);
    return status;
}

/* ---- there and back ------------------------------------------------------ */

/* Saved after two steps in one layout, loaded in another: the same bits, and so
 * after a third step. */
START_TEST(any_layout_into_any)
{
    kind_t from = (kind_t)(_i / KINDS), to = (kind_t)(_i % KINDS);
    run_t old = run_of(from), new = run_of(to);
    step(&old);
    step(&old);
    mck_assert(save(&old, 2, 0) == FSDP_OK);
    mck_assert(load(dir, &new) == FSDP_OK);
    mck_assert(same(&old, &new));
    /* FSDP1 gives an unused parameter zeros and divides: another training. */
    if ((from == FLAT) == (to == FLAT)) {
        step(&old);
        step(&new);
        mck_assert(same(&old, &new));
    }
    end(&old);
    end(&new);
}
END_TEST

START_TEST(what_it_says)
{
    fsdp_checkpoint_t *c;
    run_t run = run_of(ALL);
    step(&run);
    mck_assert(save(&run, 7, 0) == FSDP_OK);
    ck_assert(fsdp_checkpoint_open(dir, world, &c) == FSDP_OK);
    ck_assert_int_eq(fsdp_checkpoint_step(c), 7);
    ck_assert_int_eq(fsdp_checkpoint_world_size(c), fsdp_comm_size(world));
    ck_assert_str_eq(fsdp_checkpoint_metadata(c, "seed"), "42");
    ck_assert_ptr_null(fsdp_checkpoint_metadata(c, "size"));
    ck_assert(strstr(fsdp_checkpoint_path(c), "/step-00000007") != NULL);
    fsdp_checkpoint_close(&c);
    end(&run);
}
END_TEST

/* The pieces put together are the file that fsdp_model_save() writes. */
START_TEST(consolidated)
{
    fsdp_checkpoint_t *c;
    char one[2 * LONG], other[2 * LONG], command[8 * LONG];
    run_t run = run_of(_i == 0 ? ALL : FLAT);
    step(&run);
    snprintf(one, sizeof one, "%s/one", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    snprintf(command, sizeof command, "cmp %s %s", one, other);
    mck_assert(save(&run, 1, 0) == FSDP_OK);
    mck_assert(fsdp_model_save(run.model, world, one, metadata, 2) == FSDP_OK);
    ck_assert(fsdp_checkpoint_open(dir, world, &c) == FSDP_OK);
    bool good = rank > 0 || (fsdp_checkpoint_consolidate(c, other, metadata,
                                                         2) == FSDP_OK &&
                             system(command) == 0);
    mck_assert(good);
    fsdp_checkpoint_close(&c);
    end(&run);
}
END_TEST

/* ---- the folder ---------------------------------------------------------- */

static bool
there(const char *name)
{
    char full[2 * LONG];
    snprintf(full, sizeof full, "%s/%s", dir, name);
    return access(full, F_OK) == 0;
}

START_TEST(the_newest_are_kept)
{
    run_t run = run_of(ALL), other = run_of(ALL);
    for (long n = 1; n <= 4; n++) {
        step(&run);
        mck_assert(save(&run, 10 * n, 2) == FSDP_OK);
    }
    mck_assert(!there("step-00000010") && !there("step-00000020"));
    mck_assert(there("step-00000030") && there("step-00000040"));
    mck_assert(load(dir, &other) == FSDP_OK);
    mck_assert(same(&run, &other));
    end(&run);
    end(&other);
}
END_TEST

/* Of the same step: the later one takes its place. */
START_TEST(replaced)
{
    run_t run = run_of(ALL), other = run_of(SOME);
    step(&run);
    mck_assert(save(&run, 3, 0) == FSDP_OK);
    step(&run);
    mck_assert(save(&run, 3, 0) == FSDP_OK);
    mck_assert(load(dir, &other) == FSDP_OK);
    mck_assert(same(&run, &other));
    mck_assert(!there(".partial-step-00000003"));
    end(&run);
    end(&other);
}
END_TEST

/* A run that was killed while it wrote leaves no trace after the next. */
START_TEST(half_written)
{
    char full[2 * LONG];
    run_t run = run_of(ALL), other = run_of(ALL);
    step(&run);
    mck_assert(save(&run, 5, 0) == FSDP_OK);
    snprintf(full, sizeof full, "%s/.partial-step-00000009", dir);
    if (rank == 0)
        ck_assert(mkdir(full, 0700) == 0);
    fsdp_barrier(world, "made");
    mck_assert(load(dir, &other) == FSDP_OK);
    mck_assert(same(&run, &other));
    mck_assert(save(&run, 6, 0) == FSDP_OK);
    mck_assert(!there(".partial-step-00000009"));
    end(&run);
    end(&other);
}
END_TEST

START_TEST(no_folder)
{
    run_t run = run_of(ALL);
    fsdp_checkpoint_t *c;
    mck_assert(fsdp_checkpoint_save("/nowhere/at/all", 1, run.model,
                                    run.optimizer, world, NULL, 0,
                                    0) == FSDP_ERR_IO);
    mck_assert(fsdp_checkpoint_open(dir, world, &c) == FSDP_ERR_IO);
    ck_assert(strstr(fsdp_error_message(), "no checkpoint is here") != NULL);
    ck_assert(!fsdp_checkpoint_exists(dir));
    end(&run);
}
END_TEST

/* ---- damage -------------------------------------------------------------- */

/* Replaces the first `what` in the index by `with`, on rank 0. */
static void
edit_index(const char *what, const char *with)
{
    static char text[1 << 16], changed[1 << 16];
    char full[2 * LONG];
    snprintf(full, sizeof full, "%s/step-00000001/index.json", dir);
    if (rank == 0) {
        FILE *file = fopen(full, "r");
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = '\0';
        char *at = strstr(text, what);
        FSDP_CHECK(at != NULL, "no %s in the index", what);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text,
                 with, at + strlen(what));
        file = fopen(full, "w");
        fputs(changed, file);
        fclose(file);
    }
    fsdp_barrier(world, "edited");
}

static const struct {
    const char *what, *with, *says;
} edits[] = {
    {"\"version\":1", "\"version\":2", "\"version\" is not 1"},
    {"libfsdp-checkpoint", "other", "is not \"libfsdp-checkpoint\""},
    {"\"step\":1", "\"step\":-1", "\"step\" is no whole number"},
    {"rank-00000", "../rank-00000", "one with a folder in it"},
    {"\"file\":0", "\"file\":99", "in no file of the list"},
    {"\"runs\":[[0,", "\"runs\":[[1,", "transformer"},
    {"\"runs\":[[0,", "\"runs\":[[9223372036854775807,", "outside of it"},
    {"\"shape\":[7,4]", "\"shape\":[4294967296,4294967296]", "overflows"},
    {"\"float32\"", "\"int32\"", "has no floating \"dtype\""},
    {"\"bytes\":", "\"bytes\":1", "bytes, the checkpoint's index says"},
    {"exp_avg_sq", "exp_avg_cb", "is missing, or has not the type"},
    {"\"world_size\":", "\"world_size\":9", "is not one for each rank"},
    {"{", "{\"step\":1,", "duplicate"},
    {"{", "", "index.json"},
};
enum { EDITS = sizeof edits / sizeof *edits };

START_TEST(a_wrong_index)
{
    run_t run = run_of(ALL), other = run_of(ALL);
    step(&run);
    mck_assert(save(&run, 1, 0) == FSDP_OK);
    edit_index(edits[_i].what, edits[_i].with);
    mck_assert(load(dir, &other) == FSDP_ERR_INPUT);
    ck_assert_msg(strstr(fsdp_error_message(), edits[_i].says) != NULL,
                  "\"%s\" lacks \"%s\"", fsdp_error_message(), edits[_i].says);
    mck_assert(has(other.model, value)); /* nothing was loaded */
    end(&run);
    end(&other);
}
END_TEST

/* One byte of the last rank's data, then the end of the file. */
START_TEST(a_damaged_file)
{
    char full[2 * LONG];
    run_t run = run_of(WHOLE), other = run_of(ALL);
    step(&run);
    mck_assert(save(&run, 1, 0) == FSDP_OK);
    snprintf(full, sizeof full, "%s/step-00000001/rank-00000.safetensors", dir);
    if (rank == 0 && _i == 0) {
        unsigned char byte;
        int fd = open(full, O_RDWR);
        off_t end_of = lseek(fd, -3, SEEK_END);
        ck_assert(pread(fd, &byte, 1, end_of) == 1);
        byte ^= 4;
        ck_assert(pwrite(fd, &byte, 1, end_of) == 1);
        close(fd);
    } else if (rank == 0 && _i == 1) {
        ck_assert(truncate(full, 100) == 0);
    } else if (rank == 0) {
        ck_assert(unlink(full) == 0);
    }
    fsdp_barrier(world, "damaged");
    mck_assert(load(dir, &other) != FSDP_OK);
    ck_assert(strstr(fsdp_error_message(), "rank-00000.safetensors") != NULL);
    mck_assert(has(other.model, value));
    end(&run);
    end(&other);
}
END_TEST

START_TEST(another_optimizer)
{
    fsdp_sgd_options_t options = fsdp_sgd_options_default();
    run_t run = run_of(ALL), other = {.model = model_of(ALL)};
    other.optimizer = fsdp_sgd_create(other.model, &options);
    step(&run);
    mck_assert(save(&run, 1, 0) == FSDP_OK);
    mck_assert(load(dir, &other) == FSDP_ERR_INPUT);
    ck_assert(strstr(fsdp_error_message(), "exp_avg") != NULL);
    end(&run);
    end(&other);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("checkpoint");
    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, any_layout_into_any, 0, KINDS * KINDS);
    tcase_add_test(tcase, what_it_says);
    tcase_add_loop_test(tcase, consolidated, 0, 2);
    tcase_add_test(tcase, the_newest_are_kept);
    tcase_add_test(tcase, replaced);
    tcase_add_test(tcase, half_written);
    tcase_add_test(tcase, no_folder);
    tcase_add_loop_test(tcase, a_wrong_index, 0, EDITS);
    tcase_add_loop_test(tcase, a_damaged_file, 0, 3);
    tcase_add_test(tcase, another_optimizer);
    return mck_run(argc, argv, suite);
}
