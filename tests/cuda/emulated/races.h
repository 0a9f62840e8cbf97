/* SPDX-License-Identifier: Apache-2.0 */
/* races.h - finds accesses to shared and device memory that nothing orders: a race detector by
 * vector clocks, for kernels that are compiled with -fsanitize=thread and EMULATED_RACES=1. In
 * other builds all of this is empty.
 *
 * Every fiber has a clock; so has every operation of the copy engine. What one did before it
 * released a point comes before all that others do after they acquire that point. Besides what is
 * ordered, a clock knows what is published: writes of threads that a fence has made visible to the
 * copy engine and to products, which see nothing else.
 *
 * Kernels, copies and fills on streams have clocks of another kind, by stream. All threads of the
 * host share one of these: what one of them has waited for comes before what any of them
 * enqueues. */
#ifndef EMULATED_RACES_H
#define EMULATED_RACES_H

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <vector>

#if !defined(EMULATED_RACES)
#define EMULATED_RACES 0
#endif

/* For functions whose accesses are noted by hand. */
#if EMULATED_RACES
#define EMULATED_UNWATCHED __attribute__((no_sanitize("thread")))
#else
#define EMULATED_UNWATCHED
#endif

namespace emulated
{

enum access_kind {
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
    ACCESS_ATOMIC = 4, /* with either: no race with others of that kind */
    ACCESS_CHANGE = ACCESS_READ | ACCESS_WRITE | ACCESS_ATOMIC,
    ACCESS_ASYNC = 8 /* by the copy engine or a product: sees only what is published */
};

/* Where clocks are handed over: `kind` says what it is, the others which one. */
enum point_kind {
    POINT_BARRIER,
    POINT_PHASE,
    POINT_PHASES_DONE,
    POINT_READ,
    POINT_WRITTEN,
    POINT_TURN
};
inline uint64_t point(enum point_kind kind, uint64_t which, unsigned number = 0)
{
    return (uint64_t)kind << 60 | which << 20 | number;
}

/* Memory of the device, or what each gang has anew. */
enum watched { WATCHED_NOT, WATCHED_DEVICE, WATCHED_SHARED };

struct race_operation; /* of the copy engine: its clock, and who it is */
typedef std::shared_ptr<race_operation> race_handle;

#if EMULATED_RACES

/* What comes after what: by stream, until which of its operations. */
struct race_order {
    std::vector<uint32_t> after;
    void join(const race_order &other);
};
/* One more operation of this stream, after what `order` says, which then names it too. It runs
 * until races_end_work(). */
void races_start_work(int stream, race_order &order);
void races_end_work();

/* Memory whose accesses are looked at; it has whole pages to itself. */
void races_watch(void *memory, size_t bytes, enum watched what);
void races_forget(void *memory, size_t bytes);
constexpr size_t RACES_PAGE = 4096;
inline size_t races_padded(size_t bytes)
{
    return (bytes + RACES_PAGE - 1) / RACES_PAGE * RACES_PAGE;
}

/* A gang of a grid starts, with so many fibers; it has ended. `early`: fibers do not come after the
 * kernel before this one on the stream, until they follow it. */
void races_start_gang(int fibers, bool early);
void races_end_gang();
/* Races so far. Each pair of places in the code is told once. */
int races_found();
/* At the end of the program: exit code 98 where there were any. */
void check_races();

/* Of the operation that runs now, or the fiber. */
void race_release(uint64_t point);
void race_acquire(uint64_t point);
/* For a fiber that does not run. */
void race_acquire_for(int slot, uint64_t point);
void race_forget(uint64_t point);
/* Those who acquire `to` also acquire what was released at `from`, which starts anew. */
void race_pass_on(uint64_t from, uint64_t to);
/* These lanes of a warp: each comes after what all of them did. */
void race_meet(int first_slot, uint32_t lanes);
/* What the fiber knows is published. */
void race_publish();
void race_follow();
void race_access(const void *memory, size_t bytes, int kind);
/* Where device code called the emulation, which tells of accesses meanwhile. The fiber must not
 * change. */
struct race_place {
    explicit race_place(const void *code);
    ~race_place();
};

/* An operation that the fiber issues, within a race_place, and that runs between race_enter() and
 * race_leave(). Those of one `agent` end in order. */
race_handle race_issue(uint64_t agent);
void race_enter(const race_handle &operation);
void race_leave();

#else

struct race_order {
    void join(const race_order &) {}
};
inline void races_start_work(int, race_order &) {}
inline void races_end_work() {}
constexpr size_t RACES_PAGE = 256;
inline size_t races_padded(size_t bytes) { return bytes; }
inline void races_watch(void *, size_t, enum watched) {}
inline void races_forget(void *, size_t) {}
inline void races_start_gang(int, bool) {}
inline void races_end_gang() {}
inline int races_found() { return 0; }
inline void check_races() {}
inline void race_release(uint64_t) {}
inline void race_acquire(uint64_t) {}
inline void race_acquire_for(int, uint64_t) {}
inline void race_forget(uint64_t) {}
inline void race_pass_on(uint64_t, uint64_t) {}
inline void race_meet(int, uint32_t) {}
inline void race_publish() {}
inline void race_follow() {}
inline void race_access(const void *, size_t, int) {}
struct race_place {
    explicit race_place(const void *) {}
    ~race_place() {}
};
inline race_handle race_issue(uint64_t) { return nullptr; }
inline void race_enter(const race_handle &) {}
inline void race_leave() {}

#endif

} // namespace emulated

#endif
