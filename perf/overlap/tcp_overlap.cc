// tcp_overlap RANK ADDRESS PORT BYTES M K: what any program can hide on this link and these cores: two processes send
// each other BYTES over a plain TCP connection, with a thread each way, while each multiplies [M, K] by [K, N] on one
// thread. N is chosen so that the product takes as long as the exchange. Prints medians in ms, of the slower rank.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "perf/common/fail.h"
#include "perf/common/median.h"
#include "perf/overlap/matmul.h"

namespace axccl::perf {
namespace {

constexpr int kRounds = 11;
constexpr int64_t kPieces = 16;  // of the product, as of a pipeline's

double Now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Connection {
 public:
  Connection(int rank, const char* address, int port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1) Fail(kExitUsage, "%s is no IPv4 address", address);
    rank == 0 ? Accept(to) : Connect(to);
  }
  void Send(const char* from, size_t bytes) const {
    while (bytes != 0) {
      const ssize_t sent = send(fd_, from, bytes, MSG_NOSIGNAL);
      if (sent <= 0) Fail(kExitFailed, "send: %s", std::strerror(errno));
      from += sent, bytes -= static_cast<size_t>(sent);
    }
  }
  void Receive(char* to, size_t bytes) const {
    while (bytes != 0) {
      const ssize_t got = recv(fd_, to, bytes, 0);
      if (got <= 0) Fail(kExitFailed, "recv: %s", got == 0 ? "the other rank has ended" : std::strerror(errno));
      to += got, bytes -= static_cast<size_t>(got);
    }
  }
  // The larger one of both ranks' values.
  double Slower(double mine) const {
    double theirs = 0;
    Send(reinterpret_cast<const char*>(&mine), sizeof(mine));
    Receive(reinterpret_cast<char*>(&theirs), sizeof(theirs));
    return std::max(mine, theirs);
  }

 private:
  void Accept(const sockaddr_in& at) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 || listen(listener, 1) != 0)
      Fail(kExitFailed, "listening: %s", std::strerror(errno));
    fd_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
  }
  void Connect(const sockaddr_in& to) {
    const double deadline = Now() + 10e3;
    for (;;) {
      fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) return;
      close(fd_);
      if (Now() > deadline) Fail(kExitFailed, "connecting: %s", std::strerror(errno));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the other rank listens
    }
  }

  int fd_ = -1;
};

class Contest {
 public:
  Contest(const Connection& connection, size_t bytes, int64_t m, int64_t k)
      : connection_(connection), sent_(bytes, 's'), received_(bytes), m_(m), k_(k), a_(Size(m * k), 1.0f) {}

  // Sizes the product.
  void Balance() {
    SetColumns(256);
    const double product = Time([&] { Multiply(); }), exchange = Time([&] { Exchange(); });
    SetColumns(std::max<int64_t>(static_cast<int64_t>(256 * exchange / product), 1));
  }
  void Run(bool prints) {
    std::array<std::vector<double>, 3> times;
    for (int round = 0; round < kRounds; ++round) {
      times[0].push_back(Time([&] { Multiply(); }));
      times[1].push_back(Time([&] { Exchange(); }));
      times[2].push_back(Time([&] {
        std::thread exchange([&] { Exchange(); });
        Multiply();
        exchange.join();
      }));
    }
    const double product = Median(times[0]), exchange = Median(times[1]), both = Median(times[2]);
    if (prints)
      std::printf(
          "{\"compute_ms\": %.3f, \"communicate_ms\": %.3f, \"both_ms\": %.3f, \"overlap\": %.4f, \"n\": %lld}\n",
          product, exchange, both, std::max(product, exchange) / both, static_cast<long long>(n_));
  }

 private:
  static size_t Size(int64_t count) { return static_cast<size_t>(count); }
  void SetColumns(int64_t n) {
    n_ = n;
    b_.assign(Size(k_ * n), 1.0f);
    c_.assign(Size(m_ * n), 0.0f);
  }
  void Multiply() {
    const int64_t rows = m_ / kPieces;
    for (int64_t i = 0; i < kPieces; ++i)
      Matmul(a_.data() + i * rows * k_, b_.data(), c_.data() + i * rows * n_, rows, n_, k_);
  }
  void Exchange() {
    std::thread sender([&] { connection_.Send(sent_.data(), sent_.size()); });
    connection_.Receive(received_.data(), received_.size());
    sender.join();
  }
  double Time(const std::function<void()>& work) const {
    connection_.Slower(0);  // both begin
    const double begin = Now();
    work();
    return connection_.Slower(Now() - begin);
  }

  const Connection& connection_;
  const std::vector<char> sent_;
  std::vector<char> received_;
  const int64_t m_, k_;
  int64_t n_ = 0;
  const std::vector<float> a_;
  std::vector<float> b_, c_;
};

int Main(int argc, char** argv) {
  BeginProgram(argc, argv);
  if (argc != 7) Fail(kExitUsage, "pass RANK ADDRESS PORT BYTES M K");
  UseOneThread();
  const int rank = std::atoi(argv[1]);
  const Connection connection(rank, argv[2], std::atoi(argv[3]));
  Contest contest(connection, static_cast<size_t>(std::atoll(argv[4])), std::atoll(argv[5]), std::atoll(argv[6]));
  contest.Balance();
  contest.Run(rank == 0);
  return kExitOk;
}

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::Main(argc, argv); }
