/* SPDX-License-Identifier: Apache-2.0 */
/* races.cc - see races.h. The compiler calls the functions at the end at every access; what the
 * emulation copies by itself it tells by race_access().
 *
 * Four bytes that are looked at have a spot, or one each where somebody accesses a part of them: the
 * last write, and up to three reads that are not ordered among themselves. With more of them one is
 * forgotten at random, so a single race may be missed; one of a whole tile is not. Blocks of a grid,
 * and operations of streams, run one after the other here and need not elsewhere: a spot of device
 * memory also knows what earlier blocks of the grid did, and which operations last wrote and read
 * it. */
#include "races.h"

#if EMULATED_RACES

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "internal.h"

namespace emulated
{

/* ---- Clocks ---- */

constexpr int MAX_AGENTS = 128;

/* By fiber, then by agent: until when one comes after it. The first agent is the kernel before this
 * one on its stream: 1 after it has ended. */
struct clocks {
    std::vector<uint32_t> seen, published;
};

struct race_operation {
    int who;
    clocks at;
    int32_t place; /* in the code that issued it */
};

static std::vector<clocks> fiber_clocks;
static std::unordered_map<uint64_t, clocks> points;
static std::map<uint64_t, int> agents; /* their numbers */
static std::vector<uint32_t> agent_times;
static size_t fiber_count;
static thread_local bool in_gang;
static const race_operation *running;

static void join(std::vector<uint32_t> &to, const std::vector<uint32_t> &from)
{
    for (size_t i = 0; i < to.size(); i++) to[i] = to[i] < from[i] ? from[i] : to[i];
}
static void join(clocks &to, const clocks &from)
{
    if (to.seen.empty()) {
        to = from;
        return;
    }
    join(to.seen, from.seen);
    join(to.published, from.published);
}

static clocks &mine() { return fiber_clocks[(size_t)fiber_slot()]; }
/* What a fiber does next was not known to whom it told of before. */
static void advance() { mine().seen[(size_t)fiber_slot()]++; }

void race_release(uint64_t point)
{
    join(points[point], running ? running->at : mine());
    if (!running) advance();
}

void race_acquire_for(int slot, uint64_t point)
{
    const auto found = points.find(point);
    if (found != points.end()) join(fiber_clocks[(size_t)slot], found->second);
}
void race_acquire(uint64_t point) { race_acquire_for(fiber_slot(), point); }
void race_forget(uint64_t point) { points.erase(point); }

void race_pass_on(uint64_t from, uint64_t to)
{
    const auto found = points.find(from);
    if (found == points.end()) return;
    const clocks passed = std::move(found->second);
    points.erase(found);
    join(points[to], passed);
}

void race_meet(int first_slot, uint32_t lanes)
{
    clocks all;
    for (uint32_t left = lanes; left; left &= left - 1)
        join(all, fiber_clocks[(size_t)(first_slot + __builtin_ctz(left))]);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const size_t slot = (size_t)(first_slot + __builtin_ctz(left));
        fiber_clocks[slot] = all;
        fiber_clocks[slot].seen[slot]++;
    }
}

void race_publish()
{
    mine().published = mine().seen;
    advance();
}

void race_follow() { mine().seen[fiber_count] = 1; }

/* ---- Operations of streams ---- */

struct work {
    int stream;
    uint32_t time; /* how many there are of its stream, with it */
    bool kernel, early; /* early: launched so that it may start before the one before it has ended */
    uint32_t previous; /* the number of the one before it on the stream; 0: none */
};
static std::vector<work> works; /* by number, from 1 */
struct stream_state {
    uint32_t times, last; /* how many operations; the number of the last one */
};
static std::vector<stream_state> stream_states;
static const race_order *work_order; /* of the one that runs, or NULL */
static thread_local bool in_work;

void race_order::join(const race_order &other)
{
    if (after.size() < other.after.size()) after.resize(other.after.size());
    for (size_t i = 0; i < other.after.size(); i++)
        after[i] = after[i] < other.after[i] ? other.after[i] : after[i];
}

static uint32_t work_number() { return (uint32_t)works.size(); }

/* May this operation still run when the current kernel has just started? It may be the one before
 * it, or any before that one, as long as those in between may have started early as well. */
static bool may_overlap(uint32_t number)
{
    for (uint32_t n = works.back().previous; n && works[n - 1].kernel; n = works[n - 1].previous) {
        if (n == number) return true;
        if (!works[n - 1].early) return false;
    }
    return false;
}

/* For an access that comes after `at`. */
static bool is_before(uint32_t number, const clocks &at)
{
    const work &w = works[number - 1];
    if (in_gang && !at.seen[fiber_count] && may_overlap(number)) return false;
    return (size_t)w.stream < work_order->after.size() &&
           work_order->after[(size_t)w.stream] >= w.time;
}

/* ---- Who has done what to a byte ---- */

struct access {
    uint32_t time;
    uint16_t who;
    uint16_t kind; /* 0: none */
    int32_t place; /* in the code, from here() */
};

/* What an operation did that has ended. */
struct past {
    uint32_t work; /* its number; 0: nothing */
    uint16_t kind;
    int32_t place;
};

struct spot {
    uint32_t work, gang;  /* the last ones here */
    uint16_t looked_back; /* kinds of access for which `wrote` and `read` were compared */
    uint16_t before;      /* kinds of what earlier gangs of the operation did */
    int32_t before_place;
    access write, reads[3]; /* of the gang */
    past wrote, read[2];    /* of operations before this one */
};

struct four {
    spot whole;
    spot *split; /* of each byte, once they differ */
};
struct page {
    enum watched what;
    four fours[RACES_PAGE / 4];
};
/* Addresses of 47 bits: groups of pages, then pages. */
constexpr int PAGE_BITS = 12, GROUP_BITS = 12;
struct group {
    unsigned char watched[1 << GROUP_BITS]; /* enum watched */
    page *pages[1 << GROUP_BITS];
};
static group *groups[(size_t)1 << (47 - PAGE_BITS - GROUP_BITS)];
static uint32_t gang_number, random_state = 1;

static group *group_of(uintptr_t address) { return groups[address >> (PAGE_BITS + GROUP_BITS)]; }
static size_t page_number(uintptr_t address)
{
    return address >> PAGE_BITS & ((1u << GROUP_BITS) - 1);
}

void races_watch(void *memory, size_t bytes, enum watched what)
{
    const uintptr_t start = (uintptr_t)memory;
    for (uintptr_t at = start; at < start + bytes; at += RACES_PAGE) {
        group *&g = groups[at >> (PAGE_BITS + GROUP_BITS)];
        if (!g) g = static_cast<group *>(calloc(1, sizeof(group)));
        if (!g) fail("no memory to look for races");
        g->watched[page_number(at)] = (unsigned char)what;
    }
}

void races_forget(void *memory, size_t bytes)
{
    const uintptr_t start = (uintptr_t)memory;
    for (uintptr_t at = start; at < start + bytes; at += RACES_PAGE) {
        group *g = group_of(at);
        g->watched[page_number(at)] = WATCHED_NOT;
        page *&p = g->pages[page_number(at)];
        for (size_t i = 0; p && i < RACES_PAGE / 4; i++) free(p->fours[i].split);
        free(p);
        p = nullptr;
    }
}

/* NULL where nobody looks. */
static page *page_of(uintptr_t address)
{
    if (address >> 47) return nullptr;
    group *g = group_of(address);
    if (!g || !g->watched[page_number(address)]) return nullptr;
    page *&p = g->pages[page_number(address)];
    if (!p) p = static_cast<page *>(calloc(1, sizeof(page)));
    if (!p) fail("no memory to look for races");
    p->what = (enum watched)g->watched[page_number(address)];
    return p;
}

void races_start_work(int stream, race_order &order)
{
    const size_t index = (size_t)stream;
    if (stream_states.size() <= index) stream_states.resize(index + 1);
    if (order.after.size() <= index) order.after.resize(index + 1);
    stream_state &s = stream_states[index];
    order.after[index] = ++s.times;
    works.push_back({ stream, s.times, false, false, s.last });
    s.last = work_number();
    work_order = &order;
    gang_number++;
    in_work = true;
}
void races_end_work()
{
    work_order = nullptr;
    in_work = false;
}

void races_start_gang(int fibers, bool early)
{
    gang_number++;
    works.back().kernel = true;
    works.back().early = early;
    fiber_count = (size_t)fibers;
    fiber_clocks.resize(fiber_count);
    for (size_t i = 0; i < fiber_count; i++) {
        fiber_clocks[i].seen.assign(fiber_count + MAX_AGENTS, 0);
        fiber_clocks[i].published.assign(fiber_count + MAX_AGENTS, 0);
        fiber_clocks[i].seen[i] = 1;
        fiber_clocks[i].seen[fiber_count] = !early;
    }
    points.clear();
    agents.clear();
    agent_times.clear();
    in_gang = true;
}
void races_end_gang() { in_gang = false; }

/* ---- Reports ---- */

static int found;
static std::set<std::pair<int32_t, int32_t>> told;

static uintptr_t here() { return (uintptr_t)&races_found; }
static int32_t place_of(const void *code) { return (int32_t)((intptr_t)code - (intptr_t)here()); }

/* For addr2line. */
static std::string place_name(int32_t place)
{
    const uintptr_t code = here() + (uintptr_t)(intptr_t)place;
    Dl_info info;
    char text[300];
    if (!dladdr((void *)code, &info)) return "?";
    const char *name = strrchr(info.dli_fname, '/');
    snprintf(text, sizeof text, "%s 0x%zx", name ? name + 1 : info.dli_fname,
             (size_t)(code - 1 - (uintptr_t)info.dli_fbase));
    return text;
}

static const char *kind_name(int kind)
{
    const bool write = kind & ACCESS_WRITE;
    if (kind & ACCESS_ASYNC)
        return write ? "the copy engine writes it" : "the copy engine or a product reads it";
    if (kind & ACCESS_ATOMIC) return "it is changed atomically";
    return write ? "it is written" : "it is read";
}

static std::string name(const access &one)
{
    std::string text = kind_name(one.kind);
    if (one.who < fiber_count) text += " by fiber " + std::to_string(one.who);
    return text + " at " + place_name(one.place);
}

static void tell(const char *what, uintptr_t address, const access &now, const access &other)
{
    found++;
    if (told.size() > 100 || !told.insert({ now.place, other.place }).second) return;
    char at[50] = "a copy or fill";
    if (in_gang) snprintf(at, sizeof at, "block (%u, %u, %u)", blockIdx.x, blockIdx.y, blockIdx.z);
    const char *where = page_of(address)->what == WATCHED_SHARED ? "shared" : "device";
    fprintf(stderr, "emulated CUDA: race: %s, %s memory, byte %#zx: %s; before, %s: %s\n", at,
            where, (size_t)address, name(now).c_str(), name(other).c_str(), what);
}

int races_found() { return found; }

void check_races()
{
    if (!found) return;
    fprintf(stderr, "emulated CUDA: %d races, at %zu pairs of places\n", found, told.size());
    fflush(nullptr);
    _exit(98);
}

/* ---- Accesses ---- */

static bool conflict(int a, int b) { return ((a | b) & ACCESS_WRITE) && !(a & b & ACCESS_ATOMIC); }

static void check(uintptr_t address, const access &now, const access &other, const clocks &at)
{
    if (!other.kind || !conflict(now.kind, other.kind)) return;
    if (other.who != now.who && other.time > at.seen[other.who]) {
        tell("nothing orders them", address, now, other);
    } else if (now.kind & ACCESS_ASYNC && other.kind & ACCESS_WRITE &&
               !(other.kind & (ACCESS_ASYNC | ACCESS_ATOMIC)) &&
               other.time > at.published[other.who]) {
        tell("no fence in between makes it visible there", address, now, other);
    }
}

/* Atomic if both are. */
static int both(int a, int b) { return ((a | b) & ~ACCESS_ATOMIC) | (a & b & ACCESS_ATOMIC); }

static void forget_gang(spot *s)
{
    s->write.kind = s->reads[0].kind = s->reads[1].kind = s->reads[2].kind = 0;
    s->gang = gang_number;
}

/* What earlier gangs of an operation did is ordered with nothing. */
static void end_gang_of(spot *s)
{
    for (const access *a : { &s->write, &s->reads[0], &s->reads[1], &s->reads[2] }) {
        if (!a->kind) continue;
        if (!s->before || a->kind & ACCESS_WRITE) s->before_place = a->place;
        s->before = (uint16_t)(s->before ? both(s->before, a->kind) : a->kind);
    }
    forget_gang(s);
}

static void end_work_of(spot *s)
{
    end_gang_of(s);
    if (s->before) {
        const past ended = { s->work, s->before, s->before_place };
        past *read = &s->read[s->read[0].work &&
                              works[s->read[0].work - 1].stream != works[s->work - 1].stream];
        if (s->before & ACCESS_WRITE) s->wrote = ended;
        if (s->before & ACCESS_READ) *read = ended;
    }
    s->before = s->looked_back = 0;
    s->work = work_number();
}

static void look_back(const spot *s, uintptr_t address, const access &now, const clocks &at)
{
    for (const past *p : { &s->wrote, &s->read[0], &s->read[1] })
        if (p->work && conflict(now.kind, p->kind) && !is_before(p->work, at))
            tell("no stream and no event orders these operations", address, now,
                 { 0, UINT16_MAX, p->kind, p->place });
}

/* What the gang finds at a spot, besides its own accesses. */
static void arrive(spot *s, enum watched what, uintptr_t address, const access &now,
                   const clocks &at)
{
    if (what == WATCHED_SHARED) {
        if (s->gang != gang_number) forget_gang(s);
        return;
    }
    if (s->work != work_number()) end_work_of(s);
    else if (s->gang != gang_number) end_gang_of(s);
    if (s->before && conflict(now.kind, s->before))
        tell("another block did that", address, now, { 0, UINT16_MAX, s->before, s->before_place });
    const int asks = (now.kind & (ACCESS_READ | ACCESS_WRITE))
                     << (now.kind & ACCESS_ATOMIC ? 2 : 0);
    if (in_gang && !at.seen[fiber_count]) {
        look_back(s, address, now, at);
        return;
    }
    if (asks & ~s->looked_back) look_back(s, address, now, at);
    s->looked_back = (uint16_t)(s->looked_back | asks);
}

static void note_read(spot *s, const access &now, const clocks &at)
{
    access *to = nullptr;
    for (access &r : s->reads)
        if (!r.kind || r.who == now.who || r.time <= at.seen[r.who]) to = &r;
    if (!to) {
        random_state = random_state * 1664525 + 1013904223;
        to = &s->reads[(random_state >> 16) % 3];
    }
    *to = now;
}

static void note_spot(spot *s, enum watched what, uintptr_t address, const access &now,
                      const clocks &at)
{
    arrive(s, what, address, now, at);
    check(address, now, s->write, at);
    if (!(now.kind & ACCESS_WRITE)) {
        note_read(s, now, at);
        return;
    }
    for (access &r : s->reads) {
        check(address, now, r, at);
        r.kind = 0;
    }
    s->write = now;
}

/* Bytes that have spots of their own keep them. */
static void split(four *f)
{
    f->split = static_cast<spot *>(malloc(4 * sizeof(spot)));
    if (!f->split) fail("no memory to look for races");
    for (int i = 0; i < 4; i++) f->split[i] = f->whole;
}

static void note(uintptr_t address, size_t bytes, const access &now, const clocks &at)
{
    for (const uintptr_t end = address + bytes; address < end;) {
        page *p = page_of(address);
        if (!p) return;
        four *f = &p->fours[address % RACES_PAGE / 4];
        if (!f->split && (address % 4 || end - address < 4)) split(f);
        note_spot(f->split ? &f->split[address % 4] : &f->whole, p->what, address, now, at);
        address += f->split ? 1 : 4;
    }
}

static void note_at(const void *memory, size_t bytes, int kind, int32_t place)
{
    if (!in_work) return;
    if (!in_gang) { /* a copy or a fill */
        static const clocks nobody;
        note((uintptr_t)memory, bytes, { 0, UINT16_MAX, (uint16_t)kind, place }, nobody);
        return;
    }
    if (running) {
        const race_operation &o = *running;
        note((uintptr_t)memory, bytes,
             { o.at.seen[(size_t)o.who], (uint16_t)o.who, (uint16_t)kind, o.place }, o.at);
        return;
    }
    if (!page_of((uintptr_t)memory)) return;
    const int slot = fiber_slot();
    note((uintptr_t)memory, bytes,
         { mine().seen[(size_t)slot], (uint16_t)slot, (uint16_t)kind, place }, mine());
}

static const void *place; /* struct race_place */
race_place::race_place(const void *code) { place = code; }
race_place::~race_place() { place = nullptr; }

void race_access(const void *memory, size_t bytes, int kind)
{
    note_at(memory, bytes, kind, place_of(place ? place : __builtin_return_address(0)));
}

/* ---- Operations of the copy engine ---- */

race_handle race_issue(uint64_t agent)
{
    const auto known = agents.emplace(agent, (int)(fiber_count + 1 + agents.size())).first;
    const size_t index = (size_t)known->second - fiber_count; /* from 1 */
    if (index >= MAX_AGENTS) fail("more than %d agents in a search for races", MAX_AGENTS);
    if (agent_times.size() <= index) agent_times.resize(index + 1);
    auto made = std::make_shared<race_operation>();
    made->who = known->second;
    made->at = mine();
    made->at.seen[(size_t)made->who] = ++agent_times[index];
    made->place = place_of(place);
    advance();
    return made;
}
void race_enter(const race_handle &operation) { running = operation.get(); }
void race_leave() { running = nullptr; }

} // namespace emulated

/* ---- What the compiler calls; an access that is volatile does not race with others. ---- */

using emulated::note_at;
using emulated::place_of;

#define PLACE place_of(__builtin_return_address(0))
#define ACCESSES(BYTES)                                                                            \
    void __tsan_read##BYTES(void *p) { note_at(p, BYTES, emulated::ACCESS_READ, PLACE); }          \
    void __tsan_write##BYTES(void *p) { note_at(p, BYTES, emulated::ACCESS_WRITE, PLACE); }        \
    void __tsan_volatile_read##BYTES(void *p)                                                      \
    {                                                                                              \
        note_at(p, BYTES, emulated::ACCESS_READ | emulated::ACCESS_ATOMIC, PLACE);                 \
    }                                                                                              \
    void __tsan_volatile_write##BYTES(void *p)                                                     \
    {                                                                                              \
        note_at(p, BYTES, emulated::ACCESS_WRITE | emulated::ACCESS_ATOMIC, PLACE);                \
    }

extern "C" {
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void *p, size_t bytes) { note_at(p, bytes, emulated::ACCESS_READ, PLACE); }
void __tsan_write_range(void *p, size_t bytes) { note_at(p, bytes, emulated::ACCESS_WRITE, PLACE); }
}

#endif
