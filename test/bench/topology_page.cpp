// The web page's time to interactive for 1,000, 10,000 and 100,000 actors, in headless Chromium:
// test/page/topology_page.py measures, since a browser is what it takes. Without Chromium it says
// so.
#include <cstdio>

#include <unistd.h>

int main() {
  const char* script = TROUPE_SOURCE_DIR "/test/page/topology_page.py";
  if (access("/usr/bin/chromium", X_OK) == 0) execl(script, script, TROUPE_SOURCE_DIR, nullptr);
  std::printf(
      "{\"name\": \"topology_page\", \"value\": null, \"unit\": \"ms\", \"peer\": \"none\", "
      "\"peer_value\": null, \"ratio\": null, \"threads\": 1, \"peer_version\": \"\", \"note\": "
      "\"no Chromium here: scripts/setup --page installs it\"}\n");
  return 0;
}
