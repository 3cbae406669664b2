/* The bytes of a piece, merged pair by pair: the pair of the smallest rank first,
 * of several the leftmost.  A heap finds it, so a piece of n bytes takes
 * n log n steps. */
#include <string.h>

#include "data/tokenizer.h"
#include "fsdp/memory.h"

/* A token of the piece, which knows its neighbours; -1: there is none. */
struct fsdp_symbol {
    int32_t token; /* -1: it has become part of the one before */
    int32_t before, after;
};

/* `left` and the symbol behind it may become `whole`. */
struct fsdp_pair {
    int32_t rank, place; /* of the left symbol */
    int32_t left, right, whole;
};

/* ---- lists ----------------------------------------------------------------- */

/* A block of twice the room, with the contents. */
static void *
grow(void *block, size_t used, size_t bytes)
{
    void *larger = fsdp_alloc(FSDP_MEM_OTHER, bytes);
    if (used > 0)
        memcpy(larger, block, used);
    fsdp_free(block);
    return larger;
}

void
fsdp_token_list_add(fsdp_token_list_t *list, int32_t token)
{
    if (list->count == list->room) {
        list->room = list->room > 0 ? 2 * list->room : 1024;
        list->token = grow(list->token, list->count * sizeof *list->token,
                           list->room * sizeof *list->token);
    }
    list->token[list->count++] = token;
}

void
fsdp_token_list_end(fsdp_token_list_t *list)
{
    fsdp_free(list->symbol);
    fsdp_free(list->heap);
    list->symbol = NULL;
    list->heap = NULL;
}

/* Of n bytes there are n - 1 pairs at first, and each merge, of which there are no
 * more than n - 1, makes two. */
static void
make_scratch(fsdp_token_list_t *list, size_t length)
{
    if (length <= list->scratch)
        return;
    list->scratch = length < 256 ? 256 : 2 * length;
    fsdp_token_list_end(list);
    list->symbol =
        fsdp_alloc(FSDP_MEM_OTHER, list->scratch * sizeof *list->symbol);
    list->heap =
        fsdp_alloc(FSDP_MEM_OTHER, 3 * list->scratch * sizeof *list->heap);
}

/* ---- the heap --------------------------------------------------------------- */

static bool
comes_first(const struct fsdp_pair *a, const struct fsdp_pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void
push(fsdp_token_list_t *list, struct fsdp_pair pair)
{
    size_t at = list->pairs++;
    while (at > 0 && comes_first(&pair, &list->heap[(at - 1) / 2])) {
        list->heap[at] = list->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    list->heap[at] = pair;
}

static struct fsdp_pair
pop(fsdp_token_list_t *list)
{
    struct fsdp_pair *heap = list->heap, first = heap[0];
    struct fsdp_pair last = heap[--list->pairs];
    size_t at = 0;
    for (size_t child = 1; child < list->pairs; child = 2 * at + 1) {
        if (child + 1 < list->pairs &&
            comes_first(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_first(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

/* ---- merging ----------------------------------------------------------------- */

/* If the symbol and the one behind it have a merge, it waits for its turn. */
static void
offer(const fsdp_tokenizer_t *t, fsdp_token_list_t *list, int32_t place)
{
    const struct fsdp_symbol *symbol = list->symbol;
    if (place < 0 || symbol[place].after < 0)
        return;
    int32_t left = symbol[place].token;
    int32_t right = symbol[symbol[place].after].token;
    const fsdp_merge_t *m = fsdp_tokenizer_merge(t, left, right);
    if (m != NULL)
        push(list, (struct fsdp_pair){m->rank, place, left, right, m->whole});
}

/* False: one of the two has changed since. */
static bool
merge(fsdp_token_list_t *list, const struct fsdp_pair *pair)
{
    struct fsdp_symbol *left = &list->symbol[pair->place];
    if (left->token != pair->left || left->after < 0 ||
        list->symbol[left->after].token != pair->right)
        return false;
    struct fsdp_symbol *right = &list->symbol[left->after];
    left->token = pair->whole;
    left->after = right->after;
    right->token = -1;
    if (left->after >= 0)
        list->symbol[left->after].before = pair->place;
    return true;
}

/* At most this many bytes of a piece are merged with each other: places are 32
 * bits. */
enum { MAX_PIECE = 1 << 29 };

static void
merge_piece(const fsdp_tokenizer_t *t, const char *piece, size_t length,
            fsdp_token_list_t *list)
{
    make_scratch(list, length);
    list->pairs = 0;
    for (size_t i = 0; i < length; i++)
        list->symbol[i] = (struct fsdp_symbol){
            t->byte_token[(unsigned char)piece[i]], (int32_t)i - 1,
            i + 1 < length ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i < length; i++)
        offer(t, list, (int32_t)i);
    while (list->pairs > 0) {
        struct fsdp_pair pair = pop(list);
        if (!merge(list, &pair))
            continue;
        offer(t, list, list->symbol[pair.place].before);
        offer(t, list, pair.place);
    }
    for (int32_t i = 0; i >= 0; i = list->symbol[i].after)
        fsdp_token_list_add(list, list->symbol[i].token);
}

void
fsdp_tokenizer_bpe(const fsdp_tokenizer_t *t, const char *piece, size_t length,
                   fsdp_token_list_t *list)
{
    int32_t whole = t->ignore_merges && length > 0
                        ? fsdp_tokenizer_find(t, piece, length)
                        : -1;
    if (whole >= 0) {
        fsdp_token_list_add(list, whole);
        return;
    }
    for (size_t at = 0; at < length; at += MAX_PIECE)
        merge_piece(t, piece + at,
                    length - at < MAX_PIECE ? length - at : MAX_PIECE, list);
}
