/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - the results of a run into files: all of them, or none. */
#include "store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/interrupt.h"
#include "harness/files/npy.h"
#include "harness/files/outfile.h"
#include "harness/files/safetensors.h"
#include "harness/files/tensorfile.h"
#include "harness/problem/places.h"
#include "shardfile.h"
#include "harness/world/world.h"

enum { FILES = 7 };

/* What goes where; path NULL = not wanted. The last two are no tensors. */
enum { DSINKS = FILES - 2, TRACE = FILES - 1 };

struct target {
    const char *flag;
    struct tensorfile to;
    enum tensor tensor;
};

static int list_targets(const struct options *o, struct target targets[FILES])
{
    const struct {
        const char *flag, *path;
        enum tensor tensor;
    } all[FILES] = {
        { "--out", o->out, TENSOR_OUT },
        { "--lse", o->lse, TENSOR_LSE },
        { "--dq", o->dq, TENSOR_DQ },
        { "--dk", o->dk, TENSOR_DK },
        { "--dv", o->dv, TENSOR_DV },
        [DSINKS] = { "--dsinks", o->dsinks, TENSOR_COUNT },
        [TRACE] = { "--trace", o->trace, TENSOR_COUNT },
    };
    int status = EXIT_PASS;
    for (int i = 0; i < FILES; i++) {
        targets[i] = (struct target){ .flag = all[i].flag, .tensor = all[i].tensor };
        if (tensorfile_name(&targets[i].to, all[i].path)) status = EXIT_FAULT;
    }
    return status;
}

static void free_targets(struct target targets[FILES])
{
    for (int i = 0; i < FILES; i++) tensorfile_free(&targets[i].to);
}

/* An input, which may name a tensor, against a file. */
static bool is_same(const char *input, const char *file)
{
    char *alone = safetensors_path(input);
    bool same = alone && outfile_same(alone, file);
    free(alone);
    return same;
}

static int check_targets(const struct options *o, const struct target *targets, const char *bitmap)
{
    const struct {
        const char *flag, *path;
    } inputs[] = { { "--q", o->q },
                   { "--k", o->k },
                   { "--v", o->v },
                   { "--dout", o->dout },
                   { "--dlse", o->dlse },
                   { "--order", places_is_file(o->trial.order) ? o->trial.order : NULL },
                   { "--sinks", o->trial.sinks },
                   { "--bias", o->trial.bias },
                   { "--pattern", bitmap } };
    for (int i = 0; i < FILES; i++) {
        const struct target *t = &targets[i];
        if (!t->to.path) continue;
        bool backward = i == DSINKS || (i != TRACE && tensor_is_backward(t->tensor));
        if (backward && !o->trial.backward) return refuse("%s is for --backward", t->flag);
        if (i == DSINKS && !o->trial.sinks) return refuse("--dsinks needs --sinks beside it");
        for (int j = 0; j < i; j++)
            if (targets[j].to.path && outfile_same(targets[j].to.file, t->to.file))
                return refuse("%s and %s name the same file", targets[j].flag, t->flag);
        for (int j = 0; j < COUNT(inputs); j++)
            if (inputs[j].path && is_same(inputs[j].path, t->to.file))
                return refuse("%s would overwrite %s, the file of %s", t->flag, inputs[j].path,
                              inputs[j].flag);
        if (i == TRACE && safetensors_is(t->to.path))
            return refuse("%s: %s: .safetensors files hold tensors; name another kind of file",
                          t->flag, t->to.path);
        int status = safetensors_check(t->flag, t->to.path);
        if (!status) status = outfile_check(t->flag, t->to.file);
        if (status) return status;
    }
    return EXIT_PASS;
}

int store_check(const struct options *o)
{
    struct target targets[FILES];
    char *bitmap = trial_bitmap(&o->trial);
    int status = list_targets(o, targets);
    if (!status) status = check_targets(o, targets, bitmap);
    if (!status && o->resume && !o->out)
        status = refuse("--resume needs --out: its journal is beside it");
    free(bitmap);
    free_targets(targets);
    return status;
}

static struct npy_output describe(const struct trial *t, enum tensor tensor)
{
    return (struct npy_output){
        .dtype = tensor_dtype(t, tensor),
        .axes = tensor == TENSOR_LSE ? 3 : 4,
        .shape = { t->batch, tensor_length(t, tensor), tensor_heads(t, tensor),
                   tensor_dim(t, tensor) },
    };
}

static int write_tensor(const struct engine *engine, const struct target *target,
                        struct outfile *file)
{
    struct npy_output output = describe(engine->trial, target->tensor);
    void *memory;
    int status = engine_gather(engine, target->tensor, &output.data, &memory);
    if (status) return status;
    status = tensorfile_write(file, &target->to, &output);
    free(memory);
    return status;
}

static int write_dsinks(const struct engine *engine, const struct tensorfile *to,
                        struct outfile *file)
{
    struct npy_output output = {
        .dtype = RA_F32, .axes = 1, .shape = { engine->trial->q_heads }, .data = engine->dsinks
    };
    return tensorfile_write(file, to, &output);
}

static int write_target(const struct engine *engine, const struct target *targets, int i,
                        struct outfile *file)
{
    const struct target *target = &targets[i];
    if (i == TRACE) return trace_write(engine->setup.trace, file, target->to.path);
    if (i == DSINKS) return write_dsinks(engine, &target->to, file);
    return write_tensor(engine, target, file);
}

static int write_all(const struct engine *engine, const struct target *targets,
                     struct outfile *files)
{
    int status = EXIT_PASS;
    for (int i = engine->streaming ? DSINKS : 0; i < FILES && !status; i++)
        if (targets[i].to.path) status = write_target(engine, targets, i, &files[i]);
    return status;
}

/* ---- Ranks that are processes: each writes its part -------------------------------------------
 *
 * The first process makes the files, all write, it gives them their names, and after each of these
 * steps all agree how it went. Every process knows the temporary names before there are such files,
 * and removes them when it ends in failure: the first one may be dead. Then nothing is left,
 * whoever is lost when:
 *
 *   until all have agreed that all parts are written, nobody gives a file its name; from then on
 *   the first one may, while another, who has not heard of the agreement, removes the files. It
 *   claims them all before it names the first, so it finds out, and nothing gets a name; if the
 *   last agreement fails it takes back the names.
 *
 * Only the first process itself, dead between claim and last agreement, leaves files: whole
 * ones. */

/* The first process creates all files, at their full length, and reports where values start; those
 * that are not tensors it writes. */
static int make_files(const struct engine *engine, const struct target *targets,
                      struct outfile *files, size_t offsets[FILES])
{
    int status = EXIT_PASS;
    for (int i = 0; i < FILES && !status; i++) {
        if (!targets[i].to.path) continue;
        if (i >= DSINKS) {
            status = write_target(engine, targets, i, &files[i]);
            continue;
        }
        struct npy_output output = describe(engine->trial, targets[i].tensor);
        status = tensorfile_write_room(&files[i], &targets[i].to, &output, &offsets[i]);
    }
    return status;
}

/* The others learn the names of the files from the first process. */
static int name_files(const struct target *targets, struct outfile *files, long process)
{
    int status = EXIT_PASS;
    for (int i = 0; i < FILES && !status; i++)
        if (targets[i].to.path) status = outfile_name(&files[i], targets[i].to.file, process);
    return status;
}

static int write_parts(const struct engine *engine, const struct target *targets,
                       const struct outfile *files, const size_t offsets[FILES])
{
    const struct engine_rank *r = &engine->rank[engine->first];
    int status = EXIT_PASS;
    for (int i = 0; i < DSINKS && !status; i++) {
        enum tensor tensor = targets[i].tensor;
        if (!targets[i].to.path) continue;
        const struct npy_output output = describe(engine->trial, tensor);
        const struct shardfile part = { files[i].temporary, offsets[i],
                                        tensorfile_dtype(&targets[i].to, &output) };
        int side = tensor_of_keys(tensor);
        struct shard shard = { r->runs[side], r->run_counts[side], engine->origin };
        status = shardfile_write(&part, engine->trial, tensor, &shard, &r->views[tensor]);
    }
    return status;
}

/* The message of the first process to all others. */
static int hear_first(const void *mine, void *said, size_t bytes)
{
    char *all = malloc((size_t)world_size() * bytes);
    if (!all) return fault("out of memory: %d ranks", world_size());
    int status = world_share(mine, all, bytes);
    if (!status) memcpy(said, all, bytes);
    free(all);
    return status;
}

static int write_together(const struct engine *engine, const struct target *targets,
                          struct outfile *files)
{
    int64_t process = (int64_t)getpid();
    size_t offsets[FILES] = { 0 };
    int status = targets[TRACE].to.path ? trace_gather(engine->setup.trace) : EXIT_PASS;
    if (!status) status = hear_first(&process, &process, sizeof process);
    if (status) return status;
    status = world_first() ? make_files(engine, targets, files, offsets)
                           : name_files(targets, files, (long)process);
    status = world_agree(status);
    if (!status) status = hear_first(offsets, offsets, sizeof offsets);
    return status ? status : world_agree(write_parts(engine, targets, files, offsets));
}

/* Only the first process does, where there are several. */
static int commit_all(struct outfile *files, bool shared)
{
    int status = EXIT_PASS;
    for (int i = 0; i < FILES && !status && shared; i++)
        if (files[i].temporary) status = outfile_claim(&files[i]);
    for (int i = 0; i < FILES && !status; i++)
        if (files[i].temporary) status = outfile_commit(&files[i]);
    return status;
}

int store_results(const struct options *o, const struct engine *engine)
{
    struct target targets[FILES];
    struct outfile files[FILES] = { { .path = NULL } };
    int status = list_targets(o, targets);
    if (!status)
        status = engine->joined ? write_together(engine, targets, files)
                                : write_all(engine, targets, files);
    interrupt_hold();
    if (!status && world_first()) status = commit_all(files, engine->joined);
    /* Last: with it the journal goes, and a run that is resumed writes the files above again. */
    if (!status && engine->streaming) status = streaming_commit(engine->streaming);
    if (engine->joined) status = world_agree(status);
    for (int i = 0; i < FILES; i++) (status ? outfile_undo : outfile_discard)(&files[i]);
    interrupt_resume();
    free_targets(targets);
    return status;
}
