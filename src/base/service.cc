#include "src/base/service.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "src/base/blocked_signals.h"
#include "src/base/detached_thread.h"
#include "src/base/log.h"
#include "src/base/processors.h"

namespace axccl::service {
namespace {

constexpr uint64_t kWakeKey = ~uint64_t{0};
constexpr size_t kStackBytes = size_t{1} << 20;
// The delay after which a task that threw, most likely because memory ran out, runs again.
constexpr std::chrono::milliseconds kAgain{10};
constexpr int kTriesToRing = 1000;  // one try each millisecond

}  // namespace

// A task that another thread waits for, or, if it is `own_task`, that nobody waits for.
struct Loop::Posted {
  enum State { kWaiting, kDone, kLost };
  const Task own_task = nullptr;
  const Task* task = nullptr;
  Posted* next = nullptr;
  Status thrown = {};  // what the task threw
  std::mutex mutex = {};
  std::condition_variable changed = {};
  State state = kWaiting;

  // Notifies under the lock, because the waiter destroys this object as soon as it sees the state.
  void Set(State to) {
    if (own_task != nullptr) {
      if (!thrown.ok()) AXCCL_WARN("%s", thrown.message().data());
      delete this;
      return;
    }
    std::lock_guard lock(mutex);
    state = to;
    changed.notify_one();
  }
};

Result<Loop*> Loop::Get() {
  // Both outlive every static object: the thread may run until the last instruction of the process.
  static auto* mutex = new std::mutex;
  static auto* loops = new std::vector<Loop*>;  // a forked child appends its own and leaves its parents' as they are
  AXCCL_RETURN_IF_ERROR(CheckNotForked("service thread"));
  std::lock_guard lock(*mutex);
  if (loops->empty() || !loops->back()->OfThisProcess()) {
    loops->reserve(loops->size() + 1);
    std::unique_ptr<Loop> fresh(new Loop);
    AXCCL_RETURN_IF_ERROR(fresh->Start());
    loops->push_back(fresh.release());
  }
  Loop* const loop = loops->back();
  if (!loop->wake_.IsOurs()) return loop->Lost();
  return loop;
}

Status Loop::Start() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return OpenError(errno, "service thread: epoll_create1");
  AXCCL_RETURN_IF_ERROR(OpenWake());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return SystemError(errno, "service thread: epoll_ctl");
  }

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const int error = [&] {
    const BlockedSignals blocked;
    return pthread_create(&thread_, &attributes, &Loop::ThreadMain, this);
  }();
  pthread_attr_destroy(&attributes);
  if (error != 0) return NoThread(error, "service thread");
  return Status();
}

// The socket is connected to itself, so it receives its own datagrams only.
Status Loop::OpenWake() {
  wake_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!wake_) return OpenError(errno, "service thread: socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  socklen_t bytes = sizeof(sa_family_t);  // the system picks a name
  if (bind(wake_.get(), address, bytes) != 0 || (bytes = sizeof name, getsockname(wake_.get(), address, &bytes)) != 0 ||
      connect(wake_.get(), address, bytes) != 0)
    return SystemError(errno, "service thread: a socket that is connected to itself");
  return Status();
}

// Never returns: the thread must hold the liveness mutex until the process ends.
void Loop::StayBehind() {
  {
    const std::lock_guard serving(Serving());
    AXCCL_WARN("%s", std::string(Lost().message()).c_str());
    std::lock_guard lock(mutex_);
    lost_ = true;
    Posted* lost = std::exchange(first_posted_, nullptr);
    while (lost != nullptr) std::exchange(lost, lost->next)->Set(Posted::kLost);
  }
  for (;;) pause();
}

void* Loop::ThreadMain(void* self) {
  {
    const std::lock_guard serving(Serving());
    BecomeOwnThread("axccl-service");
  }
  static_cast<Loop*>(self)->Main();
  return nullptr;
}

void Loop::Main() {
  for (;;) {
    epoll_event events[32];
    const int n = wake_.IsOurs() ? epoll_wait(epoll_.get(), events, 32, TimeoutMs()) : -1;
    if (n < 0 && (errno != EINTR || !wake_.IsOurs())) return StayBehind();
    Serve(std::span(events, static_cast<size_t>(std::max(n, 0))));
  }
}

void Loop::Serve(std::span<const epoll_event> events) {
  const std::lock_guard serving(Serving());
  for (const epoll_event& event : events) {
    if (event.data.u64 == kWakeKey) {
      RunPosted();
      continue;
    }
    const auto found = watches_.find(static_cast<int>(event.data.u64 & 0xffffffffu));
    if (found == watches_.end() || found->second.generation != event.data.u64 >> 32) continue;
    const std::shared_ptr<Handler> handler = found->second.handler;  // a copy, because the handler may unwatch itself
    const Status thrown = CatchAll("service thread", [&] { return (*handler)(event.events), Status(); });
    if (!thrown.ok()) EndConnection(event.data.u64, thrown);
  }
  RunTimers();
}

// The handler may or may not have consumed what came. Shutting the connection down informs the peer, and the next event
// informs the handler. If the handler throws again, its descriptor is no longer watched.
void Loop::EndConnection(uint64_t key, const Status& why) {
  AXCCL_WARN("%s", why.message().data());
  const int fd = static_cast<int>(key & 0xffffffffu);
  const auto found = watches_.find(fd);
  if (found == watches_.end() || found->second.generation != key >> 32) return;
  if (std::exchange(found->second.ended, true) || shutdown(fd, SHUT_RDWR) != 0) Unwatch(fd);
}

void Loop::RunPosted() {
  char byte;
  while (recv(wake_.get(), &byte, sizeof byte, 0) >= 0 || errno == EINTR) {
  }
  Posted* next;
  {
    std::lock_guard lock(mutex_);
    next = std::exchange(first_posted_, nullptr);
  }
  while (next != nullptr) {
    Posted* const posted = std::exchange(next, next->next);
    posted->thrown = CatchAll("service thread", [posted] { return (*posted->task)(), Status(); });
    posted->Set(Posted::kDone);
  }
}

void Loop::RunTimers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    const Status thrown = CatchAll("service thread", [&] { return node.mapped()(), Status(); });
    if (thrown.ok()) continue;
    AXCCL_WARN("%s", thrown.message().data());
    node.key().first = now + kAgain;
    timers_.insert(std::move(node));
  }
}

int Loop::TimeoutMs() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - Clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 3600 * 1000));
}

Status Loop::CheckUsable() const {
  AXCCL_RETURN_IF_ERROR(CheckNotForked("service thread"));
  if (!OfThisProcess())
    return MakeStatus(Code::kInvalidUsage, "service thread: it belongs to the process from which this one was forked");
  return Status();
}

Status Loop::Run(const Task& task) {
  AXCCL_RETURN_IF_ERROR(CheckUsable());
  if (pthread_equal(pthread_self(), thread_)) {
    task();
    return Status();
  }
  Posted posted;
  posted.task = &task;
  AXCCL_RETURN_IF_ERROR(Enqueue(&posted));
  std::unique_lock lock(posted.mutex);
  posted.changed.wait(lock, [&] { return posted.state != Posted::kWaiting; });
  return posted.state == Posted::kDone ? posted.thrown : Lost();
}

Status Loop::Post(Task task) {
  AXCCL_RETURN_IF_ERROR(CheckUsable());
  std::unique_ptr<Posted> posted(new Posted{.own_task = std::move(task)});
  posted->task = &posted->own_task;
  AXCCL_RETURN_IF_ERROR(Enqueue(posted.get()));
  (void)posted.release();
  return Status();
}

Status Loop::Enqueue(Posted* posted) {
  std::lock_guard lock(mutex_);
  if (lost_ || !wake_.IsOurs()) return Lost();
  AXCCL_RETURN_IF_ERROR(Ring());
  Posted** last = &first_posted_;
  while (*last != nullptr) last = &(*last)->next;
  *last = posted;
  return Status();
}

// The caller has just checked that the descriptor is still the library's.
Status Loop::Ring() const {
  const char byte = 0;
  for (int tries = 0;; ++tries) {
    if (send(wake_.get(), &byte, sizeof byte, MSG_NOSIGNAL) >= 0 || errno == EAGAIN)
      return Status();  // EAGAIN: the socket is full of wake-ups already
    // When the kernel is short of memory, it recovers soon, but no event announces that, so this polls.
    const bool short_of_memory = errno == ENOBUFS || errno == ENOMEM;
    if (short_of_memory && tries >= kTriesToRing) return SystemError(errno, "service thread: waking it");
    if (!short_of_memory && errno != EINTR) return Lost();
    if (short_of_memory) (void)poll(nullptr, 0, 1);
  }
}

Status Loop::Watch(int fd, uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  const uint32_t generation = next_generation_++ & 0x7fffffffu;
  event.data.u64 = uint64_t{generation} << 32 | static_cast<uint32_t>(fd);
  watches_[fd] = Watched{generation, std::make_shared<Handler>(std::move(handler))};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  const int error = errno;
  watches_.erase(fd);
  return SystemError(error, "service thread: epoll_ctl(add, descriptor %d)", fd);
}

Status Loop::Modify(int fd, uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end())
    return MakeStatus(Code::kInternalError, "service thread: descriptor %d is not watched", fd);
  epoll_event event{};
  event.events = events;
  event.data.u64 = uint64_t{found->second.generation} << 32 | static_cast<uint32_t>(fd);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    return SystemError(errno, "service thread: epoll_ctl(modify, descriptor %d)", fd);
  }
  return Status();
}

void Loop::Unwatch(int fd) {
  if (watches_.erase(fd) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

uint64_t Loop::CallAt(Clock::time_point when, Task task) {
  const uint64_t id = next_timer_++;
  timer_times_.emplace(id, when);  // first: without the entry in the other table it has no effect
  timers_.emplace(std::pair(when, id), std::move(task));
  return id;
}

void Loop::Cancel(uint64_t timer) {
  const auto found = timer_times_.find(timer);
  if (found == timer_times_.end()) return;
  timers_.erase(std::pair(found->second, timer));
  timer_times_.erase(found);
}

}  // namespace axccl::service
