/* Folders as Hugging Face has them: several files and their index, read into a
 * model of any cut, and written again with the same bytes; what an index may not
 * say. */
/* Ranks: 1 3 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/hf_folder.h"
#include "checkpoint/model_case.h"
#include "fsdp/memory.h"
#include "mck.h"

static char source[LONG], target[LONG];

/* Rank 0 writes a text of its own there.  Collective. */
static void
put_text(const char *name, const char *text)
{
    char *full = fsdp_weights_path(source, name);
    if (rank == 0) {
        FILE *file = fopen(full, "wb");
        fputs(text, file);
        fclose(file);
    }
    fsdp_free(full);
    fsdp_barrier(world, "text");
}

/* The model's tensors [first, end) as the file NAME of the folder. */
static void
put_tensors(const char *name, const char *dtype, int first, int end)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, dtype);
    char *full = fsdp_weights_path(source, name);
    snprintf(path, sizeof path, "%s", full);
    hand_write(hand + first, end - first, value);
    fsdp_free(full);
}

static char *
index_of(const char *first, const char *second)
{
    hand_t hand[SPECS + 2];
    hand_model(hand, "F32");
    char *text = fsdp_strdup("");
    for (int i = 0; i < SPECS; i++) {
        char *longer = fsdp_format("%s%s\"%s\": \"%s\"", text, i > 0 ? "," : "",
                                   hand[i].name, i < 2 ? first : second);
        fsdp_free(text);
        text = longer;
    }
    char *whole = fsdp_format("{\"metadata\": {\"total_size\": 1}, "
                              "\"weight_map\": {%s}}",
                              text);
    fsdp_free(text);
    return whole;
}

/* Two tensors in a.safetensors, the others in b.safetensors. */
static void
set_up_folder(void)
{
    set_up();
    snprintf(source, sizeof source, "%s/source", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    if (rank == 0)
        ck_assert(mkdir(source, 0700) == 0);
    fsdp_barrier(world, "folder");
    put_tensors("a.safetensors", "BF16", 0, 2);
    put_tensors("b.safetensors", "F32", 2, SPECS);
    char *text = index_of("a.safetensors", "b.safetensors");
    put_text(FSDP_WEIGHTS_INDEX, text);
    fsdp_free(text);
}

static void
tear_down_folder(void)
{
    fsdp_barrier(world, "end");
    if (rank == 0) {
        char *command = fsdp_format("rm -rf %s %s", source, target);
        ck_assert(system(command) == 0);
        fsdp_free(command);
    }
    tear_down();
}

/* Does this tensor have the same type and bytes in both? */
static bool
same(const fsdp_stored_t *a, const fsdp_stored_t *b)
{
    static char one[MAX_BYTES], two[MAX_BYTES];
    if (a->entry == NULL || b->entry == NULL ||
        a->entry->dtype != b->entry->dtype ||
        a->entry->numel != b->entry->numel)
        return false;
    size_t bytes = a->entry->numel * fsdp_dtype_size(a->entry->dtype);
    return fsdp_safetensors_read(a->file, a->entry, 0, a->entry->numel, one) ==
               FSDP_OK &&
           fsdp_safetensors_read(b->file, b->entry, 0, b->entry->numel, two) ==
               FSDP_OK &&
           memcmp(one, two, bytes) == 0;
}

/* Written with files of at most `size` bytes: how many are there? */
static size_t
write_again(fsdp_module_t *model, const fsdp_weights_t *like, uint64_t size)
{
    static const fsdp_hf_config_t config = {.model = FSDP_HF_GPT2};
    fsdp_hf_saving_t saving = {
        .config = &config, .like = like, .max_shard_size = size};
    fsdp_weights_t *again;
    mck_assert(fsdp_hf_folder_save(model, world, target, &saving) == FSDP_OK);
    mck_assert(fsdp_weights_open(target, &again) == FSDP_OK);
    bool good = true, twice;
    for (int i = 0; i < SPECS; i++) {
        fsdp_stored_t a = fsdp_weights_find_bare(like, specs[i].name, &twice);
        fsdp_stored_t b = fsdp_weights_find(again, specs[i].name);
        good = good && same(&a, &b);
    }
    size_t files = again->count;
    mck_assert(good);
    fsdp_weights_close(&again);
    fsdp_barrier(world, "read");
    char *command = fsdp_format("rm -rf %s", target);
    if (rank == 0)
        ck_assert(system(command) == 0);
    fsdp_free(command);
    fsdp_barrier(world, "removed");
    return files;
}

START_TEST(several_files_and_back)
{
    fsdp_weights_t *like;
    mck_assert(fsdp_weights_open(source, &like) == FSDP_OK);
    for (int cut = 0; cut < GIVEN_CUTS; cut++) {
        fsdp_module_t *model = make(FSDP_FP32, (given_cut_t)cut, zero);
        mck_assert(fsdp_model_load(model, world, source) == FSDP_OK);
        mck_assert(has(model, value));
        ck_assert_uint_eq(write_again(model, like, 1 << 30), 1);
        ck_assert_uint_eq(write_again(model, like, 1), SPECS);
        fsdp_module_destroy(&model);
    }
    fsdp_weights_close(&like);
}
END_TEST

/* ---- what is refused ------------------------------------------------------ */

/* Loading says so on all ranks, with this in the message, and changes nothing. */
static void
refused(const char *word)
{
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, third);
    fsdp_status_t status = fsdp_model_load(model, world, source);
    mck_assert(fsdp_status_exit_code(status) == 2);
    if (strstr(fsdp_error_message(), word) == NULL)
        ck_abort_msg("not \"%s\": %s", word, fsdp_error_message());
    mck_assert(has(model, third));
    fsdp_module_destroy(&model);
}

START_TEST(indexes_that_lie)
{
    static const struct {
        const char *first, *second, *word;
    } files[] = {
        {"../source/a.safetensors", "b.safetensors", "without a path"},
        {"/etc/passwd", "b.safetensors", "without a path"},
        {"a.safetensors", "./b.safetensors", "without a path"},
        {"a.safetensors", "..", "without a path"},
        {"a.safetensors", "", "without a path"},
        {"a.safetensors", "b\\n", "without a path"},
        {"a.safetensors", "c.safetensors", "c.safetensors cannot be opened"},
        {"b.safetensors", "a.safetensors", "in another file"},
        {"a.safetensors", "a.safetensors", "not in the file"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text = index_of(files[i].first, files[i].second);
        put_text(FSDP_WEIGHTS_INDEX, text);
        fsdp_free(text);
        refused(files[i].word);
    }
}
END_TEST

START_TEST(indexes_that_are_none)
{
    static const char *const texts[][2] = {
        {"", "index.json"},
        {"{", "index.json"},
        {"[]", "weight_map"},
        {"{\"weight_map\": {}}", "empty"},
        {"{\"weight_map\": [\"a.safetensors\"]}", "weight_map"},
        {"{\"weight_map\": {\"x\": 1}}", "without a path"},
        {"{\"weight_map\": {\"x\": null}}", "without a path"},
        {"{\"metadata\": {\"total_size\": NaN}, \"weight_map\": {\"x\": "
         "\"a\"}}",
         "index.json"},
        {"{\"weight_map\": {\"x\": \"a\", \"x\": \"a\"}}", "index.json"},
        {"{\"weight_map\": {\"x\": \"a.safetensors\"}}", "missing"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put_text(FSDP_WEIGHTS_INDEX, texts[i][0]);
        refused(texts[i][1]);
    }
    char *deep = fsdp_calloc(FSDP_MEM_OTHER, 100001);
    memset(deep, '[', 100000);
    put_text(FSDP_WEIGHTS_INDEX, deep);
    fsdp_free(deep);
    refused("index.json");
}
END_TEST

START_TEST(a_tensor_in_two_files)
{
    put_tensors("b.safetensors", "F32", 1, SPECS);
    refused("in another file");
}
END_TEST

START_TEST(neither_file_nor_index)
{
    char *full = fsdp_weights_path(source, FSDP_WEIGHTS_INDEX);
    if (rank == 0)
        unlink(full);
    fsdp_free(full);
    fsdp_barrier(world, "none");
    refused("holds neither");
}
END_TEST

/* A single file goes before an index, as it does in transformers. */
START_TEST(a_single_file_goes_first)
{
    put_text(FSDP_WEIGHTS_INDEX, "no index");
    put_tensors(FSDP_WEIGHTS_FILE, "F64", 0, SPECS);
    fsdp_module_t *model = make(FSDP_FP32, GIVEN_ALL, zero);
    mck_assert(fsdp_model_load(model, world, source) == FSDP_OK);
    mck_assert(has(model, value));
    fsdp_module_destroy(&model);
}
END_TEST

int
main(int argc, char **argv)
{
    TCase *tc = tcase_create("hf_folder");
    tcase_add_checked_fixture(tc, set_up_folder, tear_down_folder);
    tcase_add_test(tc, several_files_and_back);
    tcase_add_test(tc, indexes_that_lie);
    tcase_add_test(tc, indexes_that_are_none);
    tcase_add_test(tc, a_tensor_in_two_files);
    tcase_add_test(tc, neither_file_nor_index);
    tcase_add_test(tc, a_single_file_goes_first);
    Suite *suite = suite_create("hf_folder");
    suite_add_tcase(suite, tc);
    return mck_run(argc, argv, suite);
}
