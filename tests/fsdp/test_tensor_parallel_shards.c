/* Ranks: 2 4 6 8 */
/* Which elements a rank has under tensor parallelism, alone and below fully_shard():
 * those that PyTorch's ranks have (data/golden/tensor_parallel.json). */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/whole_file.h"
#include "fsdp.h"
#include "mck.h"

enum { MAX_PARAMETERS = 16, MAX_LAYERS = 8 };

static int64_t
integer(const fsdp_json_t *value)
{
    int64_t i = -1;
    ck_assert(fsdp_json_get_integer(value, &i));
    return i;
}

static fsdp_module_t *
sharded(const fsdp_json_t *widths, const fsdp_tensor_parallel_t *tp,
        const fsdp_options_t *options)
{
    fsdp_mlp_config_t config = {.num_layers = (int)fsdp_json_size(widths) - 1,
                                .dtype = FSDP_FP32};
    for (size_t i = 0; i < fsdp_json_size(widths); i++)
        config.width[i] = (size_t)integer(fsdp_json_at(widths, i));
    fsdp_module_t *m = fsdp_mlp_create(&config);
    ck_assert(fsdp_tensor_parallel_mlp(m, tp) == FSDP_OK);
    for (int i = 0; i < config.num_layers; i++)
        ck_assert(fully_shard(fsdp_mlp_layer(m, i), options) == FSDP_OK);
    ck_assert(fully_shard(m, options) == FSDP_OK);
    return m;
}

/* The element that stands at `at`; -1 behind the last. */
static int64_t
element_at(const fsdp_json_t *runs, int64_t at)
{
    for (size_t r = 0; r < fsdp_json_size(runs); r++) {
        const fsdp_json_t *run = fsdp_json_at(runs, r);
        int64_t count = integer(fsdp_json_at(run, 1));
        if (at < count)
            return integer(fsdp_json_at(run, 0)) + at;
        at -= count;
    }
    return -1;
}

static bool
same_elements(fsdp_parameter_t *p, const fsdp_json_t *runs)
{
    fsdp_layout_t layout = fsdp_parameter_local(p).layout;
    fsdp_run_t run = {0};
    int64_t at = 0;
    while (fsdp_layout_next_run(&layout, &run))
        for (size_t i = 0; i < run.count; i++)
            if (element_at(runs, at++) != (int64_t)(run.whole + i))
                return false;
    return element_at(runs, at) == -1;
}

static bool
as_pytorch(fsdp_module_t *m, const fsdp_json_t *rank)
{
    fsdp_parameter_t *p[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(m, p, MAX_PARAMETERS);
    bool good = count == fsdp_json_size(rank);
    for (size_t i = 0; i < count && good; i++) {
        good = same_elements(p[i], fsdp_json_member(rank, p[i]->name));
        if (!good)
            fprintf(stderr, "%s has other elements\n", p[i]->name);
    }
    return good;
}

static void
check_case(const fsdp_json_t *c, int dp, int tp)
{
    fsdp_mesh_t *mesh =
        fsdp_mesh_create(2, (int[]){dp, tp}, (const char *const[]){"dp", "tp"});
    fsdp_tensor_parallel_t parallel = {tp, fsdp_mesh_comm(mesh, 1),
                                       FSDP_ORDER_TREE};
    fsdp_options_t options = fsdp_options_default();
    options.mesh = fsdp_mesh_slice(mesh, 1, (const char *const[]){"dp"});
    fsdp_module_t *m =
        sharded(fsdp_json_member(c, "widths"), &parallel, &options);
    mck_assert(
        as_pytorch(m, fsdp_json_at(fsdp_json_member(c, "ranks"),
                                   (size_t)fsdp_comm_rank(fsdp_comm_world()))));
    fsdp_module_destroy(&m);
    fsdp_mesh_destroy(&options.mesh);
    fsdp_mesh_destroy(&mesh);
}

START_TEST(shards)
{
    char *path = fsdp_format("%s/golden/tensor_parallel.json",
                             getenv("FSDP_DATA_DIR")),
         *text;
    size_t length;
    fsdp_json_t *golden;
    int found = 0;
    ck_assert(fsdp_file_read(path, 1 << 20, &text, &length) == FSDP_OK);
    ck_assert(fsdp_json_parse(path, text, length, &golden) == FSDP_OK);
    const fsdp_json_t *cases = fsdp_json_member(golden, "cases");
    for (size_t i = 0; i < fsdp_json_size(cases); i++) {
        const fsdp_json_t *c = fsdp_json_at(cases, i);
        int dp = (int)integer(fsdp_json_member(c, "dp"));
        int tp = (int)integer(fsdp_json_member(c, "tp"));
        if (dp * tp != fsdp_comm_size(fsdp_comm_world()))
            continue;
        check_case(c, dp, tp);
        found++;
    }
    ck_assert_int_gt(found, 0);
    fsdp_json_destroy(&golden);
    fsdp_free(text);
    fsdp_free(path);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("tensor_parallel_shards");
    TCase *tcase = tcase_create("shards");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, shards);
    return mck_run(argc, argv, suite);
}
