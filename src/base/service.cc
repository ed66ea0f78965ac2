#include "src/base/service.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>

#include "src/base/log.h"
#include "src/base/processors.h"

namespace axccl::service {
namespace {

constexpr uint64_t kWakeKey = ~uint64_t{0};
constexpr size_t kStackBytes = size_t{1} << 20;

}  // namespace

Result<Loop*> Loop::Get() {
  // Both outlive every static object: the thread may run until the last instruction of the process.
  static auto* mutex = new std::mutex;
  static Loop* loop = nullptr;
  AXCCL_RETURN_IF_ERROR(CheckNotForked("service thread"));
  std::lock_guard lock(*mutex);
  if (loop == nullptr) {
    std::unique_ptr<Loop> fresh(new Loop);
    AXCCL_RETURN_IF_ERROR(fresh->Start());
    loop = fresh.release();
  }
  return loop;
}

Status Loop::Start() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return OpenError(errno, "service thread: epoll_create1");
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return OpenError(errno, "service thread: eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return SystemError(errno, "service thread: epoll_ctl");
  }

  // The application's signals are for its own threads; a mask set before the thread starts leaves no gap.
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, &attributes, &Loop::ThreadMain, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) return SystemError(error, "service thread: pthread_create (limit on processes or memory?)");
  return Status();
}

void* Loop::ThreadMain(void* self) {
  BecomeOwnThread("axccl-service");
  static_cast<Loop*>(self)->Main();
  return nullptr;
}

void Loop::Main() {
  for (;;) {
    epoll_event events[32];
    const int n = epoll_wait(epoll_.get(), events, 32, TimeoutMs());
    if (n < 0 && errno != EINTR) {
      AXCCL_WARN("service thread: epoll_wait failed (errno %d); somebody closed descriptor %d of the library", errno,
                 epoll_.get());
      return;
    }
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kWakeKey) {
        RunPosted();
        continue;
      }
      const auto found = watches_.find(static_cast<int>(events[i].data.u64 & 0xffffffffu));
      if (found == watches_.end() || found->second.generation != events[i].data.u64 >> 32) continue;
      const std::shared_ptr<Handler> handler = found->second.handler;  // it may unwatch itself
      (*handler)(events[i].events);
    }
    RunTimers();
  }
}

void Loop::RunPosted() {
  uint64_t count;
  while (read(wake_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

void Loop::RunTimers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

int Loop::TimeoutMs() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - Clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 3600 * 1000));
}

Status Loop::Run(const Task& task) {
  AXCCL_RETURN_IF_ERROR(CheckNotForked("service thread"));
  if (pthread_equal(pthread_self(), thread_)) {
    task();
    return Status();
  }
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  {
    std::lock_guard lock(mutex_);
    posted_.push_back([&] {
      task();
      std::lock_guard inner(mutex);
      done = true;
      done_changed.notify_one();  // under the lock: the waiter destroys both as soon as it sees `done`
    });
  }
  const uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  std::unique_lock lock(mutex);
  done_changed.wait(lock, [&] { return done; });
  return Status();
}

Status Loop::Watch(int fd, uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  const uint32_t generation = next_generation_++ & 0x7fffffffu;
  event.data.u64 = uint64_t{generation} << 32 | static_cast<uint32_t>(fd);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return SystemError(errno, "service thread: epoll_ctl(add, descriptor %d)", fd);
  }
  watches_[fd] = Watched{generation, std::make_shared<Handler>(std::move(handler))};
  return Status();
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
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_.emplace(id, when);
  return id;
}

void Loop::Cancel(uint64_t timer) {
  const auto found = timer_times_.find(timer);
  if (found == timer_times_.end()) return;
  timers_.erase(std::pair(found->second, timer));
  timer_times_.erase(found);
}

}  // namespace axccl::service
