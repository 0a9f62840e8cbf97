/* SPDX-License-Identifier: Apache-2.0 */
/* ringattn.h - exact attention for sequences that do not fit on one device.
 *
 * Queries stay on their rank. Keys and values travel from rank to rank in blocks, and every block
 * is folded into a running softmax. No score matrix exists.
 *
 * CALL ORDER  ra_attention() is all of this in one call, on one rank.
 *     ra_group_create_local()   ranks as threads: one handle per rank, each used by one thread;
 *                               ra_group_run() starts the threads. Processes: ra_group_join().
 *     ra_pattern_parse()        which keys a query attends to: "causal", "window:512", ...
 *     ra_plan_create()          what this rank computes, sends and receives; allocates all buffers
 *     ra_attend()               forward, as often as you like; allocates nothing
 *     ra_gradient()             backward, likewise
 *     ra_plan_destroy(), ra_pattern_destroy(), ra_group_destroy()
 *
 * TENSORS are [batch, position, head, dim], with any strides as long as dim is contiguous. Every
 * rank passes its own shard: the positions that its partition gives it, in ascending order.
 *
 * OWNERSHIP  The caller destroys every handle, a plan before its group; every destroy function
 * accepts NULL. Once its group is destroyed, a plan still answers questions, but its runs fail with
 * RA_ERR_ARGUMENT; memory and threads of the group then stay until its last plan is destroyed. The
 * library keeps no pointer of the caller after a call returns.
 *
 * THREADS  One thread at a time per handle; a group and its plans count as one. A second gets
 * RA_ERR_BUSY. Different handles may be used at once; any thread may call ra_group_abort().
 *
 * FORK  A child of fork() may make handles of its own, if no other thread was in a call of the
 * library; those of the parent it must neither use nor destroy. With "mpi", do not fork.
 *
 * ERRORS  A function that can fail returns ra_status and writes its result only on success.
 * ra_last_error() then returns one sentence, per thread. The library never prints, exits or aborts.
 *
 * STRUCTS that the caller fills start with `size`. NAME_default() sets it, and all other fields to
 * 0, which means "default" for every field. New fields are only ever appended; a struct without
 * `size` never changes.
 */
#ifndef RINGATTN_H
#define RINGATTN_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RA_VERSION_MAJOR 0
#define RA_VERSION_MINOR 4
#define RA_VERSION_PATCH 0

#if defined(__GNUC__)
#define RA_API __attribute__((visibility("default")))
#else
#define RA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RA_DEFAULT_(name)                                                                          \
    static inline name name##_default(void)                                                        \
    {                                                                                              \
        name result;                                                                               \
        memset(&result, 0, sizeof result);                                                         \
        result.size = sizeof result;                                                               \
        return result;                                                                             \
    }

/* ---- Status ---------------------------------------------------------------------------------- */
/* Every status: name, value, meaning. */
#define RA_STATUS_LIST(X)                                                                          \
    X(RA_OK, 0, "success")                                                                         \
    X(RA_ERR_ARGUMENT, 1, "an argument is wrong")                                                  \
    X(RA_ERR_UNSUPPORTED, 2, "this combination is not supported")                                  \
    X(RA_ERR_MEMORY, 3, "memory could not be allocated")                                           \
    X(RA_ERR_BUDGET, 4, "the memory budget is too small")                                          \
    X(RA_ERR_MISMATCH, 5, "the ranks disagree about the problem")                                  \
    X(RA_ERR_TIMEOUT, 6, "a peer sent no heartbeat in time")                                       \
    X(RA_ERR_PEER, 7, "a peer failed")                                                             \
    X(RA_ERR_ABORTED, 8, "the group was aborted")                                                  \
    X(RA_ERR_SYSTEM, 9, "the operating system refused a request")                                  \
    X(RA_ERR_CORRUPT, 10, "a message changed on its way")                                          \
    X(RA_ERR_BUSY, 11, "another thread is using this handle")
typedef enum ra_status {
#define RA_STATUS_ENUM_(name, value, text) name = value,
    RA_STATUS_LIST(RA_STATUS_ENUM_)
#undef RA_STATUS_ENUM_
} ra_status;

/* A sentence about the last failure on this thread; "" if there was none. */
RA_API const char *ra_last_error(void);
/* "RA_ERR_BUDGET" and "the memory budget is too small"; "unknown status" for other numbers. */
RA_API const char *ra_status_name(ra_status status);
RA_API const char *ra_status_text(ra_status status);
/* Version of the library that is running, "0.4.0"; it may be newer than the header. */
RA_API const char *ra_version(void);

/* ---- Memory ---------------------------------------------------------------------------------- */
/* Where the library allocates its memory. Both functions may be called from any thread. */
typedef struct ra_allocator {
    size_t size;                                                   /* by ra_allocator_default() */
    void *(*alloc)(void *context, size_t bytes, size_t alignment); /* NULL = out of memory */
    void (*free)(void *context, void *memory, size_t bytes);       /* never called with NULL */
    void *context;
} ra_allocator;
RA_DEFAULT_(ra_allocator)
/* Replaces the allocator of the process; NULL restores that of the C library. Refused while any
 * handle exists. No other thread may use the library during this call. */
RA_API ra_status ra_allocator_set(const ra_allocator *allocator);
/* Bytes that the library holds now, over all handles. 0 when every handle is destroyed. */
RA_API size_t ra_allocated_bytes(void);

/* ---- Types and tensors ----------------------------------------------------------------------- */
/* bf16 is the upper half of an f32, f16 is IEEE half precision. */
typedef enum ra_dtype { RA_F32 = 0, RA_BF16 = 1, RA_F16 = 2 } ra_dtype;
/* Converts `count` numbers. Narrowing rounds to nearest, ties to even; NaN stays NaN, and what is
 * too large becomes infinity. `to` may be equal to `from` if it is not wider. */
RA_API ra_status ra_convert(ra_dtype from_dtype, const void *from, ra_dtype to_dtype, void *to,
                            int64_t count);
/* A view of [batch, position, head, dim]. Strides count elements; dim has stride 1. If all strides
 * are 0, the tensor is packed in that order. Inputs are ra_const_tensor, where one stride of 0
 * repeats an item (broadcast). Outputs are ra_tensor, whose items must not overlap. */
typedef struct ra_const_tensor {
    const void *data;
    int64_t batch_stride, position_stride, head_stride;
} ra_const_tensor;
typedef struct ra_tensor {
    void *data;
    int64_t batch_stride, position_stride, head_stride;
} ra_tensor;

static inline ra_const_tensor ra_const_tensor_packed(const void *data)
{
    ra_const_tensor t = { data, 0, 0, 0 };
    return t;
}
static inline ra_tensor ra_tensor_packed(void *data)
{
    ra_tensor t = { data, 0, 0, 0 };
    return t;
}
/* An output that is to be read, as ra_gradient() reads what ra_attend() wrote. */
static inline ra_const_tensor ra_tensor_read(ra_tensor from)
{
    ra_const_tensor t = { from.data, from.batch_stride, from.position_stride, from.head_stride };
    return t;
}
/* Positions start, start + step, ... (count of them). */
typedef struct ra_run {
    int64_t start, step, count; /* step is at least 1 */
} ra_run;

/* ---- Patterns -------------------------------------------------------------------------------- */
typedef struct ra_pattern ra_pattern; /* which keys a query attends to, in global positions */
/* From text: "full", "causal", "window:L,R", "prefix:N", "dilated:W/R,W/R,...", "blocks:B", each
 * followed by words that ra_pattern_add() knows, after semicolons: "blocks:64;local=4;global=1",
 * "causal;docs=0,120,1248,4232". docs/PATTERNS.md has the formula of every pattern. */
RA_API ra_status ra_pattern_parse(const char *text, ra_pattern **out);
RA_API void ra_pattern_destroy(ra_pattern *pattern);
/* The same by type. Query i of Nq is at position i + Nk - Nq among the Nk keys. A window has the
 * keys from position - left to position + right, a prefix the first `keys` keys for every query,
 * and causal after them. */
RA_API ra_status ra_pattern_full(ra_pattern **out);
RA_API ra_status ra_pattern_causal(ra_pattern **out); /* keys up to the query's position */
RA_API ra_status ra_pattern_window(int64_t left, int64_t right, ra_pattern **out);
RA_API ra_status ra_pattern_prefix(int64_t keys, ra_pattern **out);

/* LongNet's dilated attention. In each segment of `segment` positions, query head j selects every
 * `rate`-th position from j mod rate on, for queries and keys alike. A query attends to the keys
 * that every branch selects for it, in one softmax: a key of two branches counts twice. */
typedef struct ra_branch {
    int64_t segment, rate;
} ra_branch;
RA_API ra_status ra_pattern_dilated(const ra_branch *branches, int count, ra_pattern **out);
/* Blocks of `block` positions. Query block i sees key block j if any term makes the pair active;
 * ra_pattern_add() adds terms. */
RA_API ra_status ra_pattern_blocks(int64_t block, ra_pattern **out);
/* Adds one word. A term of blocks: "local=G", "global=G", "strided=S", "dilated=R/G",
 * "levels=S/G,S/G,...", "random=DENSITY", "seed=K", "bitmap=FILE.npy". An option of dilated:
 * "dedup" (a key counts once), "groups" (each head group has one branch), "offsets=block" (head j
 * of H has the offset floor(j / ceil(H / rate)), as in torchscale) or "offsets=cyclic" (j mod
 * rate, the default). Of every pattern: "causal", "docs=0,a,...,n". */
RA_API ra_status ra_pattern_add(ra_pattern *pattern, const char *word);
/* The bitmap term from memory: bytes [heads, blocks, blocks], not 0 = active. `heads` is 1 or the
 * number of query heads. Copied. */
RA_API ra_status ra_pattern_add_bitmap(ra_pattern *pattern, int heads, int64_t blocks,
                                       const uint8_t *active);
/* Causal removes keys after the query's position. With documents (bounds 0, a, b, ..., n; empty
 * documents are legal; copied) a query sees its own document only. */
RA_API ra_status ra_pattern_set_causal(ra_pattern *pattern);
RA_API ra_status ra_pattern_set_documents(ra_pattern *pattern, const int64_t *bounds,
                                          int64_t count);
/* Writes the text of a pattern, which parses back to the same pattern (a bitmap from memory does
 * not), and its length. Like snprintf, it truncates at `capacity` and always ends with 0. */
RA_API ra_status ra_pattern_format(const ra_pattern *pattern, char *text, size_t capacity,
                                   size_t *length);

/* ---- Order: a permutation of positions ------------------------------------------------------- */
/* Index i of the order holds the token of original position positions[i]. Segments, blocks, windows
 * and partitions count indices. Causal, prefix, documents, ALiBi, bias and dropout use original
 * positions. Needs as many queries as keys. */
typedef struct ra_order ra_order;
/* "sequential", "hilbert" (the smallest power-of-two square that holds n), "hilbert:HxW" (rows x
 * columns, at least n cells), "shuffled:SEED" (for comparison). */
RA_API ra_status ra_order_parse(const char *text, int64_t length, ra_order **out);
/* Any permutation of 0 .. length - 1. Copied. */
RA_API ra_status ra_order_custom(const int64_t *positions, int64_t length, ra_order **out);
RA_API void ra_order_destroy(ra_order *order);
/* The number of positions; and the original position of every index. */
RA_API int64_t ra_order_length(const ra_order *order);
RA_API ra_status ra_order_positions(const ra_order *order, int64_t *positions);

/* ---- Problem --------------------------------------------------------------------------------- */
/* As k_len: there are no keys, and every result is 0 with LSE -inf. For a cache that may be empty,
 * write k_len = n ? n : RA_NO_KEYS. */
#define RA_NO_KEYS (-1)

/* One of several sequences that follow one another in the tensors ("packed", "varlen"): which
 * queries it has, and which keys. */
typedef struct ra_sequence {
    int64_t q_first, q_count; /* the index of its first query; a count may be 0 */
    int64_t k_first, k_count; /* likewise of its keys */
} ra_sequence;

/* What is to be computed. Says nothing about ranks or devices. */
typedef struct ra_problem {
    size_t size;               /* by ra_problem_default() */
    const ra_pattern *pattern; /* NULL = full; copied by ra_plan_create() */
    const ra_order *order;     /* NULL = sequential; copied by ra_plan_create() */
    const float *alibi;   /* [q_heads] slopes: scores fall by slope |p - j|; NULL = none; copied */
    int64_t batch;        /* 0 = 1 */
    int64_t q_len;        /* queries over all ranks */
    int64_t k_len;        /* keys over all ranks; 0 = q_len; RA_NO_KEYS = none */
    double dropout;       /* fraction of the weights that is dropped, from 0 to below 1 */
    ra_dtype dtype;       /* of q, k, v, out and all gradients; state is always f32 */
    int q_heads;          /* at least 1 */
    int kv_heads;         /* divides q_heads; 0 = q_heads. Head j reads j * kv_heads / q_heads */
    int dim;              /* 1 to 576 */
    int value_dim;        /* 1 to 576; 0 = dim */
    float scale;          /* of q.k; 0 = 1/sqrt(dim) */
    float softcap;        /* scores become softcap tanh(scale q.k / softcap); 0 = no softcap */
    int reserved;         /* 0 */
    int64_t query_offset; /* added to the positions of all queries, 0 = the last ones: query i is at
                           * i + k_len - q_len + query_offset */
    /* NULL: the problem is one sequence. Otherwise each sequence is a problem of its own, whose
     * positions start at its first key. Sequences ascend and do not overlap. Queries between two
     * see nothing, and keys between two are seen by no query. A partition divides every sequence
     * over all ranks. Copied by ra_plan_create(). */
    const ra_sequence *sequences;
    int64_t sequence_count;
} ra_problem;
RA_DEFAULT_(ra_problem)

/* Sets seen[j] to how often query `query` (0 to q_len - 1) of `head` sees key j, for all k_len
 * keys; both are original positions. 255 means 255 or more. */
RA_API ra_status ra_problem_row(const ra_problem *problem, int head, int64_t query, uint8_t *seen);
/* Attention on one rank in one call, to try the library: makes a plan each time. Tensors are packed
 * and shaped as in ra_attend_args; `lse` may be NULL. */
RA_API ra_status ra_attention(const ra_problem *problem, const void *q, const void *k,
                              const void *v, void *out, float *lse);

/* ---- Layout: which positions a rank owns ----------------------------------------------------- */
typedef struct ra_layout ra_layout;
/* By rule: "contiguous" (also NULL), "zigzag", "striped". ";perdoc" after the name applies the rule
 * inside each document of `pattern`; without it `pattern` may be NULL. */
RA_API ra_status ra_layout_create(const char *partition, int64_t length, int ranks,
                                  const ra_pattern *pattern, ra_layout **out);
/* The rule inside each of the parts bounds[i] to bounds[i + 1] - 1: `count` bounds, ascending from
 * 0 to the number of positions. A plan with sequences has the bounds 0, where the second sequence
 * starts, where the third starts, ..., the number of queries, or of keys. */
RA_API ra_status ra_layout_create_parts(const char *partition, const int64_t *bounds, int64_t count,
                                        int ranks, ra_layout **out);
/* Custom: rank r owns the next counts[r] runs of `runs`. Every position below `length` must be
 * owned exactly once. */
RA_API ra_status ra_layout_create_custom(int64_t length, int ranks, const ra_run *runs,
                                         const int64_t *counts, ra_layout **out);
RA_API void ra_layout_destroy(ra_layout *layout);
/* The number of positions of a rank; and up to `capacity` of its runs, and how many it has. */
RA_API int64_t ra_layout_count(const ra_layout *layout, int rank);
RA_API int64_t ra_layout_runs(const ra_layout *layout, int rank, ra_run *runs, int64_t capacity);

/* One array to permute: tokens, labels, position ids, or a whole tensor. */
typedef struct ra_array {
    const void *from;
    void *to;      /* must not overlap `from` */
    int64_t batch; /* number of sequences, stored one after the other */
    size_t bytes;  /* of one position: 4 for int32 labels, heads * dim * 4 for f32 tensors */
} ra_array;
/* permute: global order -> shard of rank 0, shard of rank 1, ...; restore: the inverse.
 * take:    global order -> the shard of one rank.
 * give:    the shard of one rank -> global order; other positions stay as they are. */
RA_API ra_status ra_layout_permute(const ra_layout *layout, const ra_array *arrays, int count);
RA_API ra_status ra_layout_restore(const ra_layout *layout, const ra_array *arrays, int count);
RA_API ra_status ra_layout_take(const ra_layout *layout, int rank, const ra_array *arrays,
                                int count);
RA_API ra_status ra_layout_give(const ra_layout *layout, int rank, const ra_array *arrays,
                                int count);

/* permute: original positions -> indices of an order; restore: the inverse. With an order and a
 * layout, inputs are permuted by the order first, and results restored by the layout first. */
RA_API ra_status ra_order_permute(const ra_order *order, const ra_array *arrays, int count);
RA_API ra_status ra_order_restore(const ra_order *order, const ra_array *arrays, int count);

/* ---- Group of ranks -------------------------------------------------------------------------- */
typedef struct ra_group ra_group; /* one rank's membership in a group */
typedef enum ra_log_level { RA_LOG_INFO = 0, RA_LOG_WARNING = 1 } ra_log_level;
typedef void (*ra_log_fn)(void *context, ra_log_level level, const char *text);

/* One step of a rank, for timelines. */
typedef struct ra_trace_event {
    const char *name; /* "attend", "exchange", "wait", ...; static */
    int rank, hop;
    int64_t block;         /* whose keys; -1 where none */
    double start, seconds; /* on a clock shared by the ranks of this process */
} ra_trace_event;
typedef void (*ra_trace_fn)(void *context, const ra_trace_event *event);

typedef struct ra_group_options {
    size_t size;       /* by ra_group_options_default() */
    double timeout;    /* seconds without a heartbeat after which a peer is lost; 0 = 60 */
    ra_log_fn log;     /* called by the threads of the group, one rank per thread; NULL = none */
    ra_trace_fn trace; /* likewise */
    void *context;     /* passed to log and trace */
    size_t pool_threshold; /* plans share larger buffers (ra_pool); 0 = 16 MiB, SIZE_MAX = none */
    int threads;  /* per rank; 0 = RINGATTN_THREADS, or the cores divided by the local ranks */
    int checksum; /* 1: of all messages, against RA_ERR_CORRUPT; the same on every rank */
    const char *device;      /* what computes: "cpu", "cuda", "cuda:1"; NULL = the default */
    int on_device, reserved; /* 1: tensors of calls are in that device's memory already; 0 */
} ra_group_options;
RA_DEFAULT_(ra_group_options)

/* Ranks as threads of this process: writes a handle per rank to groups[0 .. ranks - 1]. Each needs
 * a thread of its own, because ranks wait for one another. */
RA_API ra_status ra_group_create_local(int ranks, const ra_group_options *options,
                                       ra_group **groups);
/* The same for any transport that serves all its ranks in this process, by name; NULL = "local". */
RA_API ra_status ra_group_create(const char *transport, int ranks, const ra_group_options *options,
                                 ra_group **groups);

/* This process as one rank of a group of processes, by the name of a transport that joins them:
 * "mpi". Every process of the group calls it. `where` is defined by the header of the transport
 * (ringattn_mpi.h); NULL = all processes that were started together. The transport is a plug-in,
 * found at run time, first in the folders of RINGATTN_PLUGINS; RA_ERR_UNSUPPORTED if missing. */
RA_API ra_status ra_group_join(const char *transport, const void *where,
                               const ra_group_options *options, ra_group **out);

RA_API int ra_group_rank(const ra_group *group);
RA_API int ra_group_ranks(const ra_group *group);
RA_API int ra_group_threads(const ra_group *group);

/* Allgather of a few bytes: `all` receives `bytes` bytes of every rank, in the order of ranks, its
 * own included. Every rank of the group calls it. Fails like ra_attend(). */
RA_API ra_status ra_group_share(ra_group *group, const void *mine, void *all, size_t bytes);
/* Between calls: a heartbeat, for a rank that does something else for longer than the timeout.
 * Fails once the group has failed. Cheap. */
RA_API ra_status ra_group_poll(ra_group *group);
/* Ends the calls of all ranks: each soon returns RA_ERR_ABORTED with this reason (with a custom
 * transport: what its callbacks return). Any thread. Then the group can only be destroyed. */
RA_API void ra_group_abort(ra_group *group, const char *reason);
RA_API void ra_group_destroy(ra_group *group);

/* The buffer pool of a rank. Plans of one group handle run one at a time, so they share large
 * buffers: ten plans need as much as the largest. */
typedef struct ra_pool {
    size_t size;          /* by ra_pool_default() */
    size_t threshold;     /* smaller buffers belong to one plan */
    int64_t buffers;      /* in the pool */
    size_t bytes;         /* of all of them */
    size_t bytes_idle;    /* of those that no plan uses now */
    int64_t hits, misses; /* requests that found a buffer in the pool, and that allocated one */
} ra_pool;
RA_DEFAULT_(ra_pool)
RA_API ra_status ra_group_pool(const ra_group *group, ra_pool *out);
RA_API ra_status ra_group_trim(ra_group *group); /* frees the idle ones */

/* Calls body(groups[i], context) for each handle, the first on this thread and the others on
 * threads of their own, and waits for all. A body that fails aborts the group. Returns the status
 * of the rank that failed first, with its sentence in ra_last_error(). */
typedef ra_status (*ra_rank_fn)(ra_group *group, void *context);
RA_API ra_status ra_group_run(ra_group *const *groups, int count, ra_rank_fn body, void *context);

/* ---- Plan ------------------------------------------------------------------------------------ */
typedef struct ra_plan ra_plan; /* what one rank computes, sends and receives, with its buffers */
/* How fast a rank and its links are. 0 = not known: backward_flops is then flops, any other figure
 * a default of the transport. */
typedef struct ra_machine {
    size_t size;           /* by ra_machine_default() */
    double latency;        /* seconds of a round of messages, however small */
    double bandwidth;      /* bytes per second that a rank sends, and receives at the same time */
    double flops;          /* per second and rank, forward, while all ranks work */
    double backward_flops; /* likewise backward */
    double copy;           /* bytes per second, read and written, of copies in a rank's memory */
    double load;           /* bytes per second that a stream loads or stores */
} ra_machine;
RA_DEFAULT_(ra_machine)
typedef struct ra_plan_options {
    size_t size; /* by ra_plan_options_default() */
    /* "ring" (also NULL), "allgather", "ulysses", "2d:UxR", "stream", "stream:BLOCK", "auto" */
    const char *strategy;
    const char *partition;      /* as in ra_layout_create(); NULL = contiguous */
    const ra_layout *layout;    /* instead of a partition: queries, and keys if kv_layout is NULL */
    const ra_layout *kv_layout; /* keys, where k_len differs from q_len */
    const char *kernel;         /* by name; NULL = RINGATTN_KERNEL, or the best for this CPU */
    const ra_machine *machine;  /* figures for predictions and "auto", the same on every rank */
    const ra_machine *measured; /* by ra_group_measure(); used where `machine` has 0 */
    size_t memory;              /* budget in bytes per rank, caller's shards included; 0 = none */
    int backward;               /* 1: allocate the buffers of ra_gradient() too */
    int bias; /* 1: runs will have a bias; a strategy that cannot take one is refused at once */
    int ranks, rank;       /* without a group: how many there would be (0 = 1), whose plan it is */
    const char *transport; /* likewise; NULL = "local" */
    int threads;           /* likewise; 0 = 1 */
    int sources;   /* 1: tensors are given by callbacks, and do not count: ringattn_stream.h */
    int any_order; /* 1: faster on GPUs; dq may differ in its last bits between runs, and with
                      "allgather" results between numbers of ranks */
    int counts;    /* 1: k_len is a capacity, and each run says how many keys there are */
    /* Without a group: what would compute, "cpu" (NULL) or "cuda"; tensors are in host memory. */
    const char *device;
} ra_plan_options;
RA_DEFAULT_(ra_plan_options)
/* Measures the links between neighbours, and the kernel for the dtype and dims of a problem. Of the
 * options it uses `kernel` and `backward`. Every rank calls it, and all get the figures of the
 * slowest. Takes a tenth of a second to seconds, and some megabytes per thread; on a GPU up to
 * 300 megabytes of its memory per rank. */
RA_API ra_status ra_group_measure(ra_group *group, const ra_problem *problem,
                                  const ra_plan_options *options, ra_machine *out);

/* Makes the plan of this rank. Every rank makes its own, from the same problem and options; ranks
 * compare them before the first message. Without a group (NULL) the plan cannot run and allocates
 * no buffers; it answers questions, for sizing. */
RA_API ra_status ra_plan_create(ra_group *group, const ra_problem *problem,
                                const ra_plan_options *options, ra_plan **out);
RA_API void ra_plan_destroy(ra_plan *plan);

/* Positions in this rank's query and key shards. */
RA_API int64_t ra_plan_q_count(const ra_plan *plan);
RA_API int64_t ra_plan_k_count(const ra_plan *plan);
/* The kernel; the strategy with its numbers ("2d:2x4"); why it was chosen: what "auto" predicted
 * for each candidate; the figures of predictions, and which were given, measured or assumed. */
RA_API const char *ra_plan_kernel(const ra_plan *plan);
RA_API const char *ra_plan_strategy(const ra_plan *plan);
RA_API const char *ra_plan_why(const ra_plan *plan);
RA_API const char *ra_plan_figures(const ra_plan *plan);

/* What a run does or did, on this rank. */
typedef struct ra_stats {
    size_t size;  /* by ra_stats_default() */
    int64_t hops; /* rounds of messages that this rank took part in */
    int64_t bytes_sent, bytes_received;
    int64_t pairs;       /* query-key pairs that this rank folds, over heads and batch */
    double flops;        /* forward 2 pairs (D + Dv), backward 2 pairs (3 D + 2 Dv) */
    double seconds;      /* this and the next one: measured, or in a forecast predicted */
    double wait_seconds; /* communication that was not overlapped with work */
    int64_t bytes_loaded, bytes_stored; /* of a stream: tensors that are not in memory */
} ra_stats;
RA_DEFAULT_(ra_stats)
/* Of the last run, counted; and of any next run, as planned. */
RA_API ra_status ra_plan_stats(const ra_plan *plan, ra_stats *out);
RA_API ra_status ra_plan_forecast(const ra_plan *plan, int backward, ra_stats *out);

/* Bytes that this rank needs, by purpose. A budget limits `total`. */
typedef struct ra_memory {
    size_t size;          /* by ra_memory_default() */
    size_t shard;         /* the caller's tensors of this rank */
    size_t travel;        /* K and V in transit or gathered; what ranks exchange */
    size_t state;         /* running softmax of queries that meet keys in several steps */
    size_t gradient;      /* f32 sums of dQ, dK, dV, here and in transit */
    size_t workspace;     /* of the kernel, over the threads of this rank; bounded, whatever n is */
    size_t bookkeeping;   /* the plan itself: steps, rows, messages, copies of what it was given */
    size_t total, device; /* the sum; the part of it that is memory of a GPU, without the shard */
} ra_memory;
RA_DEFAULT_(ra_memory)
RA_API ra_status ra_plan_memory(const ra_plan *plan, ra_memory *out);
/* Prints the steps of the plan, one line per call of `line`, without line ends. */
typedef void (*ra_line_fn)(void *context, const char *line);
RA_API ra_status ra_plan_explain(const ra_plan *plan, int backward, ra_line_fn line, void *context);

/* ---- Attend and gradient --------------------------------------------------------------------- */
/* Called on the rank's own thread during the run, with `done` growing to 1. If it does not return 0
 * before that, the run ends with RA_ERR_ABORTED on every rank. */
typedef int (*ra_progress_fn)(void *context, double done);
/* Added to the scores: [1 or batch, 1 or q_heads, q_count, k_len], f32, or bytes as a mask: rows
 * for the queries of this rank's shard, columns for all keys by original position. Strides count
 * elements. A stride of 0 for batch or head: all share one; for query: k_len. */
typedef struct ra_bias {
    const void *data; /* NULL = none */
    int mask;         /* 1: bytes, 0 hides the key; 0: f32, added; -INFINITY hides */
    int reserved;     /* 0 */
    int64_t batch_stride, head_stride, query_stride;
} ra_bias;
typedef struct ra_attend_args {
    size_t size;       /* by ra_attend_args_default() */
    ra_const_tensor q; /* [batch, q_count, q_heads, dim] */
    ra_const_tensor k; /* [batch, k_count, kv_heads, dim] */
    ra_const_tensor v; /* [batch, k_count, kv_heads, value_dim] */
    ra_tensor out;     /* [batch, q_count, q_heads, value_dim], written */
    float *lse;        /* [batch, q_count, q_heads] packed, natural log, written; NULL = none */
    ra_progress_fn progress; /* NULL = none */
    void *context;           /* passed to progress */
    ra_bias bias;
    const float *sinks;    /* [q_heads]: one more key with this logit and value 0; NULL = none */
    uint64_t dropout_seed; /* of this run; the same on every rank and in ra_gradient() */
    const struct ra_stream *stream; /* instead of q, k, v, out and lse: ringattn_stream.h */
    void *queue; /* of the device, to be ordered with; NULL = returns when done: ringattn_cuda.h */
    const int64_t *counts; /* [batch]: keys that are there, queries at their end; NULL = k_len */
} ra_attend_args;
RA_DEFAULT_(ra_attend_args)

/* out = softmax(scale q k^T) v over the pattern. A query that sees no key gives 0 and LSE = -inf.
 * Every rank of the group calls it. If it fails on one rank, the group is aborted on all. */
RA_API ra_status ra_attend(ra_plan *plan, const ra_attend_args *args);

typedef struct ra_gradient_args {
    size_t size; /* by ra_gradient_args_default() */
    ra_const_tensor q, k, v;
    ra_const_tensor out;  /* as ra_attend() wrote it */
    const float *lse;     /* likewise; required */
    ra_const_tensor dout; /* shaped like out */
    const float *dlse;    /* gradient through the LSE, shaped like lse; NULL = 0 */
    ra_tensor dq, dk, dv; /* written; shaped like q, k and v */
    ra_progress_fn progress;
    void *context;
    ra_bias bias; /* bias, sinks and dropout_seed as in ra_attend() */
    const float *sinks;
    uint64_t dropout_seed;
    float *dsinks; /* [q_heads], written; to be summed over the ranks; NULL = none */
    const struct ra_stream *stream; /* instead of all tensors but dsinks: ringattn_stream.h */
    void *queue;                    /* as in ra_attend_args */
    /* Gradient of a bias that is no mask, written: f32 with the strides of the bias, whose rows
     * must not overlap; summed over the heads and batch items that share it. NULL = none. Not with
     * `stream`. */
    float *dbias;
} ra_gradient_args;
RA_DEFAULT_(ra_gradient_args)

/* Needs a plan made with `backward`. Every rank calls it; fails like ra_attend(). An LSE beyond
 * +-2^20, too coarse in f32, is RA_ERR_UNSUPPORTED unless dout and dlse of its query are 0. */
RA_API ra_status ra_gradient(ra_plan *plan, const ra_gradient_args *args);

/* ---- State: attention in pieces, in any order ------------------------------------------------ */
typedef struct ra_state ra_state; /* running softmax (m, l, acc) of all queries of a problem */
/* Shapes, pattern, softcap and ALiBi come from the problem and are copied. A state takes no order
 * and no dropout. `kernel` as in ra_plan_options. A new state is empty. */
RA_API ra_status ra_state_create(const ra_problem *problem, const char *kernel, ra_state **out);
RA_API void ra_state_destroy(ra_state *state);
RA_API ra_status ra_state_init(ra_state *state); /* empties it: (-inf, 0, 0) */

/* Folds keys first_key to first_key + keys - 1 of the problem's k_len; k and v hold these keys
 * only. q holds all queries. Fold each key once; in any order. */
RA_API ra_status ra_state_fold(ra_state *state, const ra_const_tensor *q, const ra_const_tensor *k,
                               const ra_const_tensor *v, int64_t first_key, int64_t keys);
/* Sets k_len, for a cache that grew; what was folded stays. Queries stay at the end: query i is at
 * position i + keys - q_len + query_offset. Allocates nothing. */
RA_API ra_status ra_state_set_keys(ra_state *state, int64_t keys);
/* The same for a problem with sequences: replaces them all, as many as there were. A cache [batch,
 * capacity] is one tensor of batch x capacity keys, the k_len of the problem, with a sequence for
 * each item: the keys that it has, from item x capacity on. */
RA_API ra_status ra_state_set_sequences(ra_state *state, const ra_sequence *sequences);
/* Makes the next folds use all threads of this rank of the group, and poll it meanwhile; they fail
 * once it is destroyed. NULL: the calling thread alone, as in a new state. */
RA_API ra_status ra_state_use_group(ra_state *state, ra_group *group);

/* Merges the states that the ranks of a group folded from their own keys. Afterwards every rank
 * holds the sum, with the same bits. Every rank calls it; fails like ra_attend(), and the states
 * are then undefined until ra_state_init(). */
RA_API ra_status ra_state_reduce(ra_state *state, ra_group *group);
/* into += from, for two states of the same shape that folded different keys. Safe at -inf. */
RA_API ra_status ra_state_merge(ra_state *into, const ra_state *from);
/* out = acc / l and lse = m + ln l; 0 and -inf where nothing was folded. `lse` may be NULL. Does
 * not change the state. */
RA_API ra_status ra_state_finish(const ra_state *state, const ra_tensor *out, float *lse);
/* The same with one more key per head, [q_heads] logits, folded into the result only. */
RA_API ra_status ra_state_finish_sinks(const ra_state *state, const float *sinks,
                                       const ra_tensor *out, float *lse);
/* The state as flat memory, to be copied elsewhere: m in units of log2, then l, each
 * [batch, query, head], then acc [batch, query, head, value_dim], all f32. */
RA_API void *ra_state_data(ra_state *state, size_t *bytes);
/* Merges two finished partials, rows x dim f32 packed, into the first: L = logaddexp(L1, L2),
 * o = exp(L1 - L) o1 + exp(L2 - L) o2. Safe at -inf. */
RA_API ra_status ra_partial_merge(int64_t rows, int dim, float *out, float *lse,
                                  const float *other_out, const float *other_lse);

/* ---- What there is --------------------------------------------------------------------------- */
/* One entry of the library's tables. */
typedef struct ra_part {
    size_t size; /* by ra_part_default() */
    const char *name;
    const char *summary; /* one line */
    const char *why;     /* the reason for `usable` and `chosen`, as a sentence; valid until this
                            thread asks for another part */
    const char *samples; /* texts that name it, small enough for tests, separated by spaces */
    int usable;          /* 1 if it works on this machine */
    int chosen;          /* 1 if it is the default here */
    unsigned dtypes;     /* that a kernel takes: bits 1 << ra_dtype; 0 for other kinds */
    int joins;           /* 1: a transport for ra_group_join(), whose ranks are processes */
    const char *device;  /* that a kernel belongs to; NULL for other kinds */
} ra_part;
RA_DEFAULT_(ra_part)
/* `kind` is "kernel", "device", "transport", "pattern", "order", "partition" or "strategy"; index
 * from 0. RA_ERR_ARGUMENT after the last one. Of kernels on GPUs it tells what the first GPU does
 * with them. */
RA_API ra_status ra_part_at(const char *kind, int index, ra_part *out);

/* A device that computes: the CPU, or one GPU. */
typedef struct ra_device {
    size_t size;              /* by ra_device_default() */
    char device[16];          /* as ra_group_options.device takes it: "cpu", "cuda:1" */
    char name[64];            /* that its maker gave it; "": not known */
    const char *architecture; /* of a GPU: "Hopper"; NULL for others */
    const char *kernel;       /* that most problems of its dtype get; NULL: there is none */
    const char *dtype_why;    /* the reason for `dtype`, as a sentence */
    size_t memory;            /* of a GPU, bytes; 0 for others */
    int capability;           /* of a GPU: 90 is compute capability 9.0; 0 for others */
    ra_dtype dtype;           /* that it does best, for those who are free to choose */
} ra_device;
RA_DEFAULT_(ra_device)
/* The devices of this machine; index from 0, the default first. RA_ERR_ARGUMENT after the last
 * one. */
RA_API ra_status ra_device_at(int index, ra_device *out);
/* The kernels of a device by its name (NULL: the default), slowest first: which of them it can use,
 * and which it chooses. RA_ERR_ARGUMENT after the last one. */
RA_API ra_status ra_device_kernel_at(const char *device, int index, ra_part *out);

#ifdef __cplusplus
}
#endif
#include "ringattn_transport.h"
#endif
