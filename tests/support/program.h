// Runs the program `mantissa` as a user would, in a folder of its own, with a time limit.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace mantissa::test {

/// A folder that goes when the test ends.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mantissa-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

struct ProgramResult {
  int exit_code = -1;  ///< 128 + signal if it was killed
  std::string out, err;
  double seconds = 0;
  bool timed_out = false;
};

/// A program that runs; killed with its children when this goes.
class RunningProgram {
 public:
  RunningProgram(std::vector<std::string> arguments, const std::filesystem::path& folder,
                 const std::map<std::string, std::string>& environment = {})
      : start_(std::chrono::steady_clock::now()) {
    int out[2], err[2];
    if (pipe(out) != 0 || pipe(err) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        ::signal(signal, SIG_DFL);  // whatever starts the tests ignores
      dup2(open("/dev/null", O_RDONLY), 0);
      dup2(out[1], 1);
      dup2(err[1], 2);
      for (int fd : {out[0], out[1], err[0], err[1]}) close(fd);
      if (chdir(folder.c_str()) != 0) _exit(126);
      for (const char* name :
           {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MANTISSA_PLUGIN_PATH",
            "GLOO_SOCKET_IFNAME", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "TORCHELASTIC_USE_AGENT_STORE"})
        unsetenv(name);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    fds_[0] = out[0];
    fds_[1] = err[0];
  }
  ~RunningProgram() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (int fd : fds_) {
      if (fd >= 0) close(fd);
    }
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t pid() const { return pid_; }

  /// Reads until `text` was printed or `limit` has passed.
  bool wait_for(const std::string& text, std::chrono::seconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while ((out_ + err_).find(text) == std::string::npos) {
      if (!read_some(deadline)) return (out_ + err_).find(text) != std::string::npos;
    }
    return true;
  }

  /// Waits for the end of the program; kills it at the limit.
  ProgramResult wait(std::chrono::seconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (read_some(deadline)) {
    }
    ProgramResult result;
    result.timed_out = std::chrono::steady_clock::now() >= deadline;
    if (result.timed_out) kill(-pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.out = out_;
    result.err = err_;
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return result;
  }

 private:
  // False at the end of both pipes, or at the deadline.
  bool read_some(std::chrono::steady_clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd polls[2] = {{fds_[0], POLLIN, 0}, {fds_[1], POLLIN, 0}};
    if (poll(polls, 2, static_cast<int>(left)) <= 0) return false;
    for (int i = 0; i < 2; ++i) {
      if ((polls[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      char buffer[4096];
      const ssize_t size = read(fds_[i], buffer, sizeof buffer);
      if (size > 0) {
        (i == 0 ? out_ : err_).append(buffer, static_cast<size_t>(size));
      } else {
        close(fds_[i]);
        fds_[i] = -1;
      }
    }
    return fds_[0] >= 0 || fds_[1] >= 0;
  }

  pid_t pid_ = -1;
  int fds_[2] = {-1, -1};
  std::string out_, err_;
  std::chrono::steady_clock::time_point start_;
};

/// Of a running process, in the order in which they were started.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::istringstream list(
      read_file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children"));
  for (pid_t pid; list >> pid;) children.push_back(pid);
  return children;
}

inline std::string mantissa_program() { return MANTISSA_BUILD_DIR "/bin/mantissa"; }

inline ProgramResult run_mantissa(std::vector<std::string> arguments, const std::filesystem::path& folder,
                                  const std::map<std::string, std::string>& environment = {},
                                  std::chrono::seconds limit = std::chrono::seconds(90)) {
  arguments.insert(arguments.begin(), mantissa_program());
  return RunningProgram(arguments, folder, environment).wait(limit);
}

/// The one run folder below `folder`/runs.
inline std::filesystem::path run_folder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& name : std::filesystem::directory_iterator(folder / "runs")) {
    for (const auto& run : std::filesystem::directory_iterator(name)) found.push_back(run.path());
  }
  return found.size() == 1 ? found[0] : std::filesystem::path();
}

}  // namespace mantissa::test
