/* SPDX-License-Identifier: Apache-2.0 */
/* backend.cpp - a group's life: how it comes to its communicator, how calls get their thread, how it ends. collectives.cpp has the calls. */
#include "backend.hpp"

#include "errors.hpp"
#include "issue.hpp"
#include "p2p.hpp"

#include <pybind11/pybind11.h>

#include <future>
#include <tuple>
#include <unisono_watch.h>
#include <unistd.h>

namespace unisono {

namespace {

// Python code that ends a group holds the interpreter's lock, which the threads that this one waits for may want.
class WithoutGil {
 public:
    WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    ~WithoutGil()
    {
        if (state_)
            PyEval_RestoreThread(state_);
    }

 private:
    PyThreadState *state_;
};

// torch's default is nobody's wish: settings of the environment that have less weight than the program's come first. -1: so it is.
double wished_seconds(const GroupOptions &options)
{
    return options.timeout == kBackendDefaultTimeout ? -1 : seconds(options.timeout);
}

uno_config config_of(const GroupOptions &options)
{
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = config.join_timeout_s = wished_seconds(options);
    const std::string &name = options.group_desc.empty() || options.group_desc == "undefined" ? options.group_name : options.group_desc;
    config.name = name.empty() ? nullptr : name.c_str();
    return config;
}

struct Joined {
    uno_comm *comm = nullptr;
    uno_err err = UNO_OK;
    std::string text;
};

std::vector<uint8_t> id_from_store(c10d::Store &store, const std::string &key, int rank, Joined &joined)
{
    uno_id id;
    if (rank != 0)
        return store.get(key);
    joined.err = uno_get_id(&id);
    if (joined.err != UNO_OK)
        joined.text = uno_last_error(nullptr);
    // The others must not wait for what will not come.
    std::vector<uint8_t> bytes(joined.err == UNO_OK ? sizeof id : 1);
    if (joined.err == UNO_OK)
        std::memcpy(bytes.data(), &id, sizeof id);
    store.set(key, bytes);
    return bytes;
}

// The key holds the group's secret. Who comes after rank 0 has given up finds that, and does not wait for the key.
void forget_id(c10d::Store &store, const std::string &key, bool all_joined)
{
    try {
        if (all_joined)
            (void)store.deleteKey(key);
        else
            store.set(key, std::vector<uint8_t>(1));
    } catch (const std::exception &) {
        // The store is gone, or cannot delete: the group stands, or has its own error.
    }
}

Joined join(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, const c10::intrusive_ptr<GroupOptions> &options,
            const Family &family)
{
    Joined joined;
    // A store may see a group of the same name more than once: each time has an id of its own.
    int64_t time = store->add("unisono_joins/" + std::to_string(rank), 1);
    std::string key = "unisono_id/" + std::to_string(time);
    std::vector<uint8_t> bytes = id_from_store(*store, key, rank, joined);
    if (joined.err != UNO_OK)
        return joined;
    uno_id id;
    if (bytes.size() != sizeof id) {
        joined.err = UNO_ERR_UNREACHABLE;
        joined.text = "rank 0 of the group could not listen for the others, or has given up; its own error says why";
        return joined;
    }
    std::memcpy(&id, bytes.data(), sizeof id);
    uno_config config = config_of(*options);
    joined.err = family.parent ? family.parent->create_group(family.ranks, id, config, &joined.comm)
                               : uno_comm_init_rank(&joined.comm, size, &id, rank, &config);
    if (joined.err != UNO_OK)
        joined.text = uno_last_error(nullptr);
    if (rank == 0)
        forget_id(*store, key, joined.err == UNO_OK);
    return joined;
}

// Store and joining may take long: in a thread, while this one looks at signals. Whoever is interrupted leaves the thread behind.
uno_comm *join_interruptibly(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, const c10::intrusive_ptr<GroupOptions> &options,
                             const Family &family)
{
    std::promise<Joined> promise;
    std::future<Joined> future = promise.get_future();
    std::thread([store, rank, size, options, family, promise = std::move(promise)]() mutable {
        try {
            promise.set_value(join(store, rank, size, options, family));
        } catch (...) {
            promise.set_exception(std::current_exception());
        }
    }).detach();
    while (future.wait_for(kSignalPeriod) != std::future_status::ready)
        look_at_signals();
    Joined joined = future.get();
    if (joined.err != UNO_OK)
        std::rethrow_exception(error_of(joined.err, joined.text));
    return joined.comm;
}

} // namespace

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<GroupOptions> options, const Family &family)
    : c10d::Backend(rank, size), store_(std::move(store)), options_(std::move(options)), queue_(std::make_shared<Queue>()), pid_(getpid())
{
    WithoutGil none;
    comm_ = join_interruptibly(store_, rank, size, options_, family);
    init();
}

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, uno_comm *comm, c10::intrusive_ptr<GroupOptions> options)
    : c10d::Backend(uno_comm_rank(comm), uno_comm_size(comm)), store_(std::move(store)), options_(std::move(options)), comm_(comm),
      queue_(std::make_shared<Queue>()), pid_(getpid())
{
    init();
}

static std::atomic<bool> failed_program;

void program_failed()
{
    failed_program = true;
}

// The interpreter is taken down after an exception that nobody caught.
static bool ends_in_exception()
{
#if PY_VERSION_HEX >= 0x030D0000
    return failed_program && Py_IsFinalizing();
#else
    return failed_program && _Py_IsFinalizing();
#endif
}

Backend::~Backend()
{
    bool ours = getpid() == pid_;
    if (ours && in_signal_handler()) {
        queue_->refuse();
        (void)uno_comm_abort(comm_);
    }
    // Its locks may be held by threads that are not here, or wait for this one; what has failed ends with its process, which says how.
    if (!ours || in_signal_handler() || ends_in_exception()) {
        new std::shared_ptr<Queue>(queue_);
        scratch_in_.forget();
        scratch_out_.forget();
        return;
    }
    WithoutGil none;
    shutdown();
    (void)uno_comm_destroy(comm_.exchange(nullptr));
}

uno_comm *Backend::comm()
{
    uno_comm *c = comm_.load(std::memory_order_relaxed);
    refuse_in_signal_handler();
    if (!c || queue_->stopped())
        std::rethrow_exception(error_of(UNO_ERR_USAGE, "unisono: the process group was destroyed; nothing can be issued on it"));
    return c;
}

void Backend::check(uno_err err)
{
    if (err != UNO_OK)
        fail(err, uno_last_error(nullptr));
}

void Backend::fail(uno_err err, const std::string &text)
{
    std::rethrow_exception(error_of(err, "unisono: " + text));
}

void Backend::setTimeout(Millis limit)
{
    options_->timeout = limit;
    check(uno_comm_set_timeout(comm(), seconds(limit)));
}

void Backend::called_at(const char *site)
{
    if (site == site_)
        return;
    site_ = site;
    check(uno_comm_set_call_site(comm_, site));
}

void Backend::set_deadline(Millis limit)
{
    check(uno_comm_set_timeout(comm_, seconds(limit)));
}

Backend::Undo::~Undo()
{
    if (deadline)
        std::ignore = uno_comm_set_timeout(of.comm_, wished_seconds(*of.options_));
    of.scratch_in_.done();
    of.scratch_out_.done();
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
    auto type = c10::typeMetaToScalarType(options.dtype());
    c10::DataPtr memory = shared_allocator()->allocate(static_cast<size_t>(size) * c10::elementSize(type));
    void *at = memory.get();
    auto owner = std::make_shared<c10::DataPtr>(std::move(memory));
    return at::from_blob(at, {size}, [owner](void *) mutable { owner.reset(); }, options);
}

uno_err Backend::create_group(const std::vector<int> &ranks, const uno_id &id, const uno_config &config, uno_comm **made)
{
    return uno_comm_create_group(comm_, ranks.data(), static_cast<int>(ranks.size()), &id, made, &config);
}

void Backend::count(uno_counts *counts)
{
    check(uno_comm_counts(comm(), counts));
}

#ifdef UNISONO_TORCH_HAS_ErrorType
c10d::ErrorType Backend::getError()
{
    uno_comm *c = comm_;
    uno_err err = UNO_OK;
    if (!c || uno_comm_async_error(c, &err) != UNO_OK || err == UNO_OK)
        return c10d::ErrorType::SUCCESS;
    return err == UNO_ERR_TIMEOUT ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::REMOTE_ERROR;
}
#endif

// The call in which this thread waits may be this group's, and whoever holds the group may let go of it now: it stays.
void Backend::end_in_handler()
{
    if (!comm_)
        return;
    if (!kept_)
        c10::raw::intrusive_ptr::incref(this);
    kept_ = true;
    queue_->refuse();
    (void)uno_comm_abort(comm_);
}

void Backend::abort()
{
    if (getpid() != pid_)
        return;
    WithoutGil none;
    if (in_signal_handler())
        return end_in_handler();
    if (uno_comm *c = comm_)
        (void)uno_comm_abort(c);
    queue_->stop();
}

void Backend::shutdown()
{
    if (getpid() != pid_ || !comm_)
        return;
    WithoutGil none;
    if (in_signal_handler())
        return end_in_handler();
    queue_->stop();
    (void)uno_comm_finalize(comm_);
    std::lock_guard<std::mutex> lock(p2p_mutex_);
    p2p_.clear();
}

/* ---- families --------------------------------------------------------------------------------------------------------- */

static c10::intrusive_ptr<GroupOptions> options_for(const c10::intrusive_ptr<GroupOptions> &given, Millis inherited)
{
    auto options = c10::make_intrusive<GroupOptions>(kName, given ? given->timeout : inherited);
    if (given) {
        options->group_name = given->group_name;
        options->group_desc = given->group_desc;
        options->global_ranks_in_group = given->global_ranks_in_group;
    }
    return options;
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<GroupOptions> &opts)
{
    auto place = std::find(ranks.begin(), ranks.end(), rank_);
    if (place == ranks.end())
        return nullptr;
    return c10::make_intrusive<Backend>(store, static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()),
                                        options_for(opts, options_->timeout),
                                        Family{c10::intrusive_ptr<Backend>::reclaim_copy(this), ranks});
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store> &store,
                                                 const c10::intrusive_ptr<GroupOptions> &opts, const int &rank,
                                                 const int &size)
{
    return c10::make_intrusive<Backend>(store, rank, size, options_for(opts, options_->timeout));
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<int64_t> &ranks_to_exclude, int /*flags*/,
                                                  const c10::intrusive_ptr<GroupOptions> &opts)
{
    std::vector<int> exclude(ranks_to_exclude.begin(), ranks_to_exclude.end());
    auto options = options_for(opts, options_->timeout);
    uno_config config = config_of(*options);
    uno_comm *smaller = nullptr;
    WithoutGil none;
    check(uno_comm_shrink(comm(), exclude.data(), static_cast<int>(exclude.size()), &smaller, &config));
    auto made = c10::make_intrusive<Backend>(store_, smaller, options);
    throw_raised();
    return made;
}

void Backend::startCoalescing()
{
    std::lock_guard<std::mutex> lock(p2p_mutex_);
    coalesced_.clear();
    coalescing_ = true;
}

WorkPtr Backend::endCoalescing()
{
    std::lock_guard<std::mutex> lock(p2p_mutex_);
    coalescing_ = false;
    auto all = c10::make_intrusive<AllWork>(rank_, std::move(coalesced_));
    coalesced_.clear();
    return all;
}

/* ---- monitored barrier -------------------------------------------------------------------------------------------------- */

namespace {

std::vector<uint8_t> bytes_of(const std::string &text)
{
    return {text.begin(), text.end()};
}

// Until all keys are there or time is up; looks at signals.
bool keys_come(c10d::Store &store, const std::vector<std::string> &keys, std::chrono::steady_clock::time_point end)
{
    for (auto pause = Millis(0); !store.check(keys); pause = std::min(pause + Millis(1), Millis(20))) {
        if (std::chrono::steady_clock::now() >= end)
            return false;
        std::this_thread::sleep_for(pause);
        look_at_signals();
    }
    return true;
}

std::string missing_ranks(c10d::Store &store, const std::vector<std::string> &keys, int size, bool all)
{
    std::string missing;
    int count = 0;
    for (int r = 0; r < size && (all || count == 0); r++)
        if (!store.check({keys[r]})) {
            missing += (count ? ", " : "") + std::to_string(r);
            count++;
        }
    return missing.empty() ? missing : (count > 1 ? "Ranks " : "Rank ") + missing;
}

} // namespace

void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
    Millis limit = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
    auto end = std::chrono::steady_clock::now() + limit;
    std::string base = "unisono_barrier/" + std::to_string(barriers_++) + "/", verdict = base + "verdict";
    std::vector<std::string> keys;
    for (int r = 0; r < size_; r++)
        keys.push_back(base + std::to_string(r));
    store_->set(keys[rank_], bytes_of("here"));
    auto took = [&](const std::string &who) {
        // In the words of gloo, for which people look.
        return c10::str("unisono: ", who, " failed to pass monitoredBarrier in ", limit.count(), " ms; Rank ", rank_,
                        " timed out in monitoredBarrier");
    };
    if (rank_ == 0) {
        std::string who = keys_come(*store_, keys, end) ? "" : missing_ranks(*store_, keys, size_, wait_all_ranks);
        std::string text = who.empty() ? "" : took(who);
        store_->set(verdict, bytes_of("." + text));
        if (!text.empty())
            std::rethrow_exception(error_of(UNO_ERR_TIMEOUT, text));
        return;
    }
    // Rank 0 decides at its own deadline, which may be a little later than ours.
    if (!keys_come(*store_, {verdict}, end + std::min(limit, Millis(5000)))) {
        bool rank_0_came = store_->check({keys[0]});
        std::string who = rank_0_came ? missing_ranks(*store_, keys, size_, wait_all_ranks) : "Rank 0";
        std::rethrow_exception(error_of(UNO_ERR_TIMEOUT, took(who.empty() ? "Rank 0" : who)));
    }
    std::string text = store_->get_to_str(verdict).substr(1);
    if (!text.empty())
        std::rethrow_exception(error_of(UNO_ERR_TIMEOUT, text));
}

} // namespace unisono
