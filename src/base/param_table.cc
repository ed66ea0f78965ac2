// The parameters of the library and their meanings. `axccl-info` prints this table.
#include "src/base/param.h"

namespace axccl::param {
namespace {

Info Int(const char* name, const char* fallback, int64_t least, int64_t most, const char* meaning) {
  return {.name = name, .type = "int", .fallback = fallback, .meaning = meaning, .least = least, .most = most};
}
// A larger number than `most` counts as that.
Info CappedInt(const char* name, const char* fallback, int64_t least, int64_t most, const char* meaning) {
  Info info = Int(name, fallback, least, most, meaning);
  info.capped = true;
  return info;
}
Info Flags(const char* name, const char* fallback, const char* flags, int64_t most, const char* meaning) {
  Info info = Int(name, fallback, 0, most, meaning);
  info.flags = flags;
  return info;
}
Info Bytes(const char* name, const char* fallback, int64_t least, int64_t most, const char* meaning) {
  return {.name = name, .type = "bytes", .fallback = fallback, .meaning = meaning, .least = least, .most = most};
}
Info Seconds(const char* name, const char* fallback, int64_t most, const char* meaning) {
  return {.name = name, .type = "seconds", .fallback = fallback, .meaning = meaning, .most = most};
}
Info Text(const char* name, const char* fallback, const char* meaning) {
  return {.name = name, .type = "string", .fallback = fallback, .meaning = meaning};
}
Info Word(const char* name, const char* fallback, const char* words, const char* meaning) {
  return {.name = name, .type = "string", .fallback = fallback, .meaning = meaning, .words = words};
}
Info FileName(const char* name, const char* fallback, const char* meaning) {
  return {.name = name, .type = "string", .fallback = fallback, .meaning = meaning, .names_file = true};
}
Info Secret(const char* name, const char* meaning) {
  return {.name = name, .type = "string", .fallback = "", .meaning = meaning, .secret = true};
}

constexpr int64_t kKilo = 1024;
constexpr int64_t kMega = kKilo * kKilo;
constexpr int64_t kTera = kMega * kMega;
constexpr int64_t kYear = 366 * 24 * 3600;

// Also of NCCL, and what belongs to these.
std::vector<Info> CommonParameters() {
  return {
      Word("NCCL_DEBUG", "NONE", "NONE|VERSION|WARN|INFO|TRACE",
           "what is logged: nothing, or everything up to this level"),
      FileName("NCCL_DEBUG_FILE", "stdout", "log file, stdout or stderr; %h becomes the host name, %p the process id"),
      Text("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV",
           "parts of the library that log at INFO and TRACE; ^ first excludes"),
      FileName("NCCL_CONF_FILE", "",
               "file with NAME=value lines, for what the environment does not set; default ~/.nccl.conf"),
      Text("NCCL_ALGO", "",
           "algorithms allowed: a list, or func:list;func:list; ^ inverts a list; empty: the cost model's choice"),
      Text("NCCL_PROTO", "",
           "protocols GPU ranks may use: LL, LL128 (where the hardware allows it), Simple (always allowed); a list as "
           "for NCCL_ALGO; ranks use what all of them allow"),
      Int("NCCL_COMM_BLOCKING", "1", 0, 1, "0: communicators are non-blocking whatever their config says"),
      Text("NCCL_COMM_ID", "", "host:port at which ranks meet instead of exchanging a unique id"),
      Text("NCCL_SOCKET_IFNAME", "",
           "network interfaces over which ranks may meet: prefixes, = first for exact names, ^ to exclude; empty: "
           "those that lead out of the machine, else lo"),
      Word("NCCL_SOCKET_FAMILY", "", "AF_INET|AF_INET6", "address family over which ranks may meet; empty: any"),
      Word("NCCL_NET", "", "IB|Socket",
           "the network between machines: InfiniBand and RoCE, or TCP; empty: the best one to each peer"),
      Int("NCCL_IB_DISABLE", "0", 0, 1, "1: no InfiniBand and no RoCE"),
      Word(
          "NCCL_NET_GDR_LEVEL", "", "LOC|PIX|PXB|PHB|SYS|0|1|2|3|4|5",
          "how far an adapter may be from a GPU whose memory it accesses (GPUDirect RDMA); PXB unless set; LOC: never"),
      Text("NCCL_IB_HCA", "",
           "ports of InfiniBand and RoCE adapters to use, as \"mlx5_0:1,mlx5_2\": prefixes, = first for exact names, ^ "
           "to exclude; empty: all that are active"),
      CappedInt("NCCL_MIN_CTAS", "1", 1, 64,
                "lanes that an operation may use at least, and on GPUs uses if it is large; above 64 counts as 64"),
      CappedInt("NCCL_MAX_CTAS", "64", 1, 64,
                "lanes an operation uses at most, on GPUs blocks; at least NCCL_MIN_CTAS; above 64 counts as 64"),
      CappedInt("NCCL_MIN_NCHANNELS", "1", 1, 64,
                "older name of NCCL_MIN_CTAS, which has precedence where both are set"),
      CappedInt("NCCL_MAX_NCHANNELS", "64", 1, 64,
                "older name of NCCL_MAX_CTAS, which has precedence where both are set"),
      Flags("NCCL_CTA_POLICY", "0", "DEFAULT|EFFICIENCY|ZERO", 3,
            "the CTAPolicy of communicators, whatever their config says; ZERO (or 2): copy engines"),
      FileName(
          "NCCL_TOPO_FILE", "",
          "file that describes this machine, in AxCCL's form or NCCL's (docs/topology.md); empty: the library looks "
          "at the machine"),
      FileName("NCCL_TOPO_DUMP_FILE", "", "file to which a new communicator writes the description of the machine"),
      Int("NCCL_TOPO_DUMP_FILE_RANK", "0", 0, kMega, "the rank that writes NCCL_TOPO_DUMP_FILE"),
      Int("AXCCL_PLACE", "1", 0, 1,
          "0: threads, memory and NICs are left to the system on machines with several NUMA nodes or NICs, too"),
      Int("NCCL_IGNORE_CPU_AFFINITY", "0", 0, 1,
          "1: ranks are placed as if their process were not bound to some of the machine's processors"),
      Text("NCCL_HOSTID", "", "ranks of one machine with different ids do not share memory, as if on several machines"),
      Int("NCCL_CHECK_POINTERS", "0", 0, 1,
          "1: check pointers (no effect: NULL is refused in any case, and by GPU ranks memory of other devices)"),
      Int("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 0, 1, "1: order communicators (no effect: ranks need no order)"),
      Int("NCCL_LOCAL_REGISTER", "1", 0, 1,
          "0: ncclCommRegister leaves plain memory as it is, not on pages that peers map"),
      Int("NCCL_P2P_DISABLE", "0", 0, 1, "1: GPU ranks communicate through pinned host memory (host ranks ignore it)"),
      Int("NCCL_P2P_DIRECT_DISABLE", "0", 0, 1,
          "1: GPU ranks of one process access each other's buffers only once they have found that they may"),
      Int("NCCL_GRAPH_MIXING_SUPPORT", "1", 0, 1,
          "0: GPU ranks leave the order of graphs among each other and other calls to the program"),
      Int("NCCL_NVLS_ENABLE", "2", 0, 2,
          "NVLink SHARP: 0: never; 1: where all GPUs of a communicator have it; 2: there, for more than two ranks"),
      Int("NCCL_SHM_DISABLE", "0", 0, 1, "1: no shared memory (no effect: ranks of one machine have no other link)"),
  };
}

std::vector<Info> OwnParameters() {
  return {
      Word("AXCCL_DEVICE", "auto", "auto|host|cuda", "where ranks live; auto: on GPUs where there are any"),
      Bytes("AXCCL_HEAP_BYTES", "0", 0, kTera,
            "address space for ncclMemAlloc and scratch; 0: four times the physical memory, 256G to 1T"),
      Bytes("AXCCL_MALLOC_THRESHOLD", "32K", 4 * kKilo, kTera,
            "axcclMalloc, and malloc with libaxccl-malloc.so preloaded, take so many bytes and more from the heap that "
            "peers map"),
      Int("AXCCL_MALLOC_EARLY", "0", 0, 1,
          "1: libaxccl-malloc.so uses that heap from the moment libaxccl.so is loaded, not from the first "
          "communicator; children forked later cannot use the library"),
      Int("AXCCL_GPU_CHANNELS", "16", 0, 1024,
          "created channels that a GPU rank may use at a time; each takes memory of its device, 104 KiB of 8 ranks"),
      Bytes("AXCCL_SCRATCH_BYTES", "2M", 64 * kKilo, kTera, "scratch memory a rank of a communicator may use"),
      Bytes("AXCCL_NVLS_BYTES", "16M", 2 * kMega, kTera,
            "memory of its GPU that a rank has for NVLink SHARP, where that is used; rank 0's setting counts"),
      Bytes("AXCCL_MAP_BYTES", "512K", 0, kTera,
            "GPU ranks of several processes move data from buffer to buffer in calls of at least so many bytes; rank "
            "0's setting counts"),
      Bytes("AXCCL_GROW_BYTES", "16M", 0, kTera,
            "where such calls are of so many bytes and buffers cannot be mapped, GPU ranks take more scratch; rank 0's "
            "setting counts"),
      Bytes("AXCCL_GROWN_SCRATCH_BYTES", "16M", 0, kTera,
            "scratch that a GPU rank takes then, for such calls; 0: none; rank 0's setting counts"),
      Bytes(
          "AXCCL_COPY_BYTES", "8M", 1, kTera,
          "with CTAPolicy zero, copy engines make calls of at least so many bytes, of all ranks together; the largest "
          "setting of the ranks counts"),
      Word(
          "AXCCL_GPUDIRECT", "", "never|always",
          "whether adapters access memory of GPUs (GPUDirect RDMA); empty: where UCX and devices are known to do that; "
          "always: with whatever UCX uses, which must reach that memory"),
      Bytes("AXCCL_GPUDIRECT_BYTES", "16K", 1, kTera,
            "they do so in calls whose slots have so many bytes; the largest setting of the ranks counts"),
      Word("AXCCL_ORDER", "any", "any|group",
           "group: all reductions fold in group order, as with axcclGroupOrder; rank 0's setting counts"),
      Word("AXCCL_CMA", "auto", "auto|0", "0: never copy between processes by system call"),
      Text("AXCCL_ISA", "",
           "instruction set of the data movers, environment only: baseline, avx2 or avx512; else the best this "
           "processor has"),
      FileName("AXCCL_CACHE_DIR", "",
               "folder for measurements and for the secret of this user's ranks; default ~/.cache/axccl"),
      Word("AXCCL_NET", "", "tcp|ucx",
           "what carries data between machines; empty: UCX where both have InfiniBand or RoCE adapters, else TCP"),
      Word("AXCCL_ENCRYPT", "0", "0|auth|1",
           "data between machines: in clear; in clear, but no change goes unnoticed; encrypted. All ranks alike"),
      Int("AXCCL_BUSY_POLL", "0", 0, kMega,
          "microseconds for which waits for other machines keep a core; also SO_BUSY_POLL of TCP connections"),
      Word("AXCCL_QUORUM", "1", "0|1",
           "whether a shrink fails on ranks that cannot reach as many others or more, which may be alive"),
      Word("AXCCL_NET_MEASURE", "once", "once|always|never",
           "figures of the network between machines: measured once a day and kept, measured at every start, or fixed; "
           "rank 0's setting counts"),
      Secret("AXCCL_SECRET",
             "secret that ranks must know to meet at NCCL_COMM_ID, 16 bytes of random text or more; without it only "
             "this user's ranks on this machine can meet"),
      FileName(
          "AXCCL_SECRET_FILE", "",
          "file with that secret, which only its owner may read (chmod 600); unlike a command line, it does not show "
          "the secret"),
      Int("AXCCL_TRUST_NETWORK", "0", 0, 1,
          "1 declares that no stranger reaches the network between machines; else the library warns on standard error "
          "that UCX's TCP ports accept every connection, unless NCCL_SOCKET_IFNAME names the network"),
      Int("AXCCL_TREE_RANKS", "65", 1, kMega,
          "number of ranks from which on a new communicator's ranks meet in a tree, else at one process; the same on "
          "all ranks"),
      Seconds("AXCCL_INIT_TIMEOUT", "600", kYear,
              "how long ranks wait for each other when a communicator is made, split, shrunk or grown"),
      Seconds("AXCCL_TIMEOUT", "600", kYear,
              "how long an operation of this rank may wait for peers before it fails; 0: forever"),
      Seconds("AXCCL_WAIT_NOTICE", "30", kYear,
              "how long an operation waits for a peer before a line on stderr reports it; 0: no such line"),
  };
}

}  // namespace

const std::vector<Info>& Table() {
  // Never destroyed: threads of the library may still read it while the process exits.
  static const auto* const table = [] {
    auto* const all = new std::vector<Info>(CommonParameters());
    for (const Info& own : OwnParameters()) all->push_back(own);
    return all;
  }();
  return *table;
}

}  // namespace axccl::param
