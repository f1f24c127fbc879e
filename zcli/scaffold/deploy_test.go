package scaffold_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"zgame/znode"
)

// No containers run where zgame is built. So what the files for them name is compared with what there is: settings by loading them as a node
// does, ports with the settings, paths with the project.

const shown = "/etc/mygame/server.yaml" // where the image has its settings

func project(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	if code, said := try(t, "mygame"); code != 0 {
		t.Fatal(said)
	}
	t.Chdir("mygame")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// load loads the settings as a container's node does, and checks them.
func load(t *testing.T, env map[string]string) znode.Settings {
	t.Helper()
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	s, err := znode.LoadSettings("deploy/server.yaml", list)
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"7000": s.Gate.Address, "8080": s.Page.Address, "9090": s.Admin.Address} {
		if _, port, err := net.SplitHostPort(at); err != nil || port != name {
			t.Errorf("a node listens at %q, the files say %s", at, name)
		}
	}
	return s
}

func TestCompose(t *testing.T) {
	project(t)
	var compose struct {
		Name     string
		Services map[string]struct {
			Environment     map[string]string
			Ports           []string
			Volumes         []string
			StopGracePeriod string                                `yaml:"stop_grace_period"`
			DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
			Healthcheck     struct{ Test []string }
			Build           struct {
				Context            string
				AdditionalContexts map[string]string `yaml:"additional_contexts"`
			}
		}
		Volumes map[string]any
		Node    any `yaml:"x-node"`
	}
	d := yaml.NewDecoder(bytes.NewReader(read(t, "compose.yaml")))
	if err := d.Decode(&compose); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(compose.Services)); !slices.Equal(got, []string{"etcd", "mongo", "n1", "n2", "nats"}) {
		t.Fatalf("services %v", got)
	}
	origins := map[string]bool{}
	for _, id := range []string{"n1", "n2"} {
		n := compose.Services[id]
		s := load(t, n.Environment)
		if s.Node.ID != id || s.Gate.Auth.Kind != "dev" || s.Admin.URL != id+":9090" {
			t.Errorf("%s is %q, logs in by %q, is operated at %q", id, s.Node.ID, s.Gate.Auth.Kind, s.Admin.URL)
		}
		if grace, err := time.ParseDuration(n.StopGracePeriod); err != nil || grace < s.Drain.Timeout+5*time.Second {
			t.Errorf("%s has %s to stop, a drain %s", id, n.StopGracePeriod, s.Drain.Timeout)
		}
		for _, server := range []string{s.NATS.URL, s.Etcd.Endpoints[0], s.Store.Mongo.URI} {
			host := regexp.MustCompile(`//([^:/]+)`).FindStringSubmatch(server)[1]
			if _, ok := n.DependsOn[host]; !ok || compose.Services[host].Build.Context != "" {
				t.Errorf("%s needs %s, which it does not wait for", id, server)
			}
		}
		gate, page := "", ""
		for _, p := range n.Ports {
			parts := strings.Split(p, ":")
			switch parts[2] {
			case "7000":
				gate = parts[1]
			case "8080":
				page = parts[1]
			}
		}
		if s.Gate.URL != "ws://localhost:"+gate+"/ws" {
			t.Errorf("the gate of %s is published at %s and told as %s", id, gate, s.Gate.URL)
		}
		origins["http://localhost:"+page] = true
		for _, o := range s.Gate.Origins {
			origins[o] = origins[o] || false
		}
		if n.Build.Context != "." || n.Build.AdditionalContexts["zgame"] == "" || !strings.HasSuffix(strings.Join(n.Healthcheck.Test, " "), ":9090/readyz") {
			t.Errorf("%s is built of %v, and healthy by %q", id, n.Build, n.Healthcheck.Test)
		}
	}
	for o, published := range origins {
		if !published {
			t.Errorf("no page is at %s", o)
		}
	}
	for name, s := range compose.Services {
		for _, v := range s.Volumes {
			if volume, _, _ := strings.Cut(v, ":"); compose.Volumes == nil || !hasKey(compose.Volumes, volume) {
				t.Errorf("%s has the volume %s, which is not declared", name, volume)
			}
		}
	}
}

func hasKey(m map[string]any, k string) bool { _, ok := m[k]; return ok }

type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Spec yaml.Node
}

func TestKubernetes(t *testing.T) {
	project(t)
	all := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(read(t, "deploy/k8s.yaml"))); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all[o.Kind+"/"+o.Metadata.Name] = o
	}
	want := []string{"NetworkPolicy/mygame", "PodDisruptionBudget/mygame", "Service/mygame", "Service/mygame-nodes", "StatefulSet/mygame"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Fatalf("there are %v, want %v", got, want)
	}
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	var set struct {
		ServiceName string `yaml:"serviceName"`
		Selector    struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Args []string
					Env  []struct {
						Name, Value string
						ValueFrom   map[string]map[string]string `yaml:"valueFrom"`
					}
					Ports []struct {
						Name          string
						ContainerPort int `yaml:"containerPort"`
					}
					StartupProbe   probe `yaml:"startupProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
					ReadinessProbe probe `yaml:"readinessProbe"`
					Lifecycle      struct {
						PreStop struct {
							Exec struct{ Command []string }
						} `yaml:"preStop"`
					}
				}
			}
		}
	}
	stateful := all["StatefulSet/mygame"]
	if err := stateful.Spec.Decode(&set); err != nil {
		t.Fatal(err)
	}
	if _, ok := all["Service/"+set.ServiceName]; !ok || !maps.Equal(set.Selector.MatchLabels, set.Template.Metadata.Labels) {
		t.Errorf("the pods' service is %s; the set wants pods of %v and makes %v", set.ServiceName, set.Selector, set.Template.Metadata)
	}
	c := set.Template.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		for from, ref := range e.ValueFrom {
			env[e.Name] = map[string]string{"metadata.name": "mygame-0", "status.podIP": "10.1.2.3"}[ref["fieldPath"]]
			if from == "secretKeyRef" {
				env[e.Name] = strings.Repeat("s", 64)
			}
		}
		env[e.Name] = strings.ReplaceAll(env[e.Name], "$(POD_IP)", env["POD_IP"])
	}
	delete(env, "POD_IP")
	s := load(t, env)
	if s.Node.ID != "mygame-0" || s.Gate.Auth.Kind != "jwt" || s.Admin.URL != "10.1.2.3:9090" || len(s.Gate.Auth.Algorithms) != 1 {
		t.Errorf("a node is %q, logs in by %v, is operated at %q", s.Node.ID, s.Gate.Auth.Kind, s.Admin.URL)
	}
	if !slices.Equal(c.Args, []string{"run", "--config", shown}) {
		t.Errorf("it runs %q", c.Args)
	}
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = fmt.Sprint(p.ContainerPort)
	}
	if !maps.Equal(ports, map[string]string{"gate": "7000", "page": "8080", "admin": "9090"}) {
		t.Errorf("ports %v", ports)
	}
	for path, p := range map[string]probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe, "/livez ": c.StartupProbe} {
		if p.HTTPGet.Path != strings.TrimSpace(path) || p.HTTPGet.Port != "admin" {
			t.Errorf("a probe asks %v, want %s at admin", p.HTTPGet, path)
		}
	}
	hook := strings.Join(c.Lifecycle.PreStop.Exec.Command, " ")
	waits := regexp.MustCompile(`^sh -c mygame drain "\$ZGAME_NODE_ID" --admin 127\.0\.0\.1:9090 --timeout (\S+)$`).FindStringSubmatch(hook)
	if waits == nil {
		t.Fatalf("before a stop it runs %q", hook) // test/scaffold runs it
	}
	wait, err := time.ParseDuration(waits[1])
	if grace := time.Duration(set.Template.Spec.Grace) * time.Second; err != nil || wait < s.Drain.Timeout+5*time.Second || grace < wait+s.Drain.Timeout {
		t.Errorf("a drain has %s, the hook waits for %s, the pod is killed after %s", s.Drain.Timeout, wait, grace)
	}
	for name, o := range all {
		var spec struct {
			Selector map[string]any
			Ports    []struct {
				Name       string
				Port       int
				TargetPort string `yaml:"targetPort"`
			}
		}
		if o.Kind != "Service" {
			continue
		}
		if err := o.Spec.Decode(&spec); err != nil {
			t.Fatal(err)
		}
		if spec.Selector["app"] != set.Template.Metadata.Labels["app"] {
			t.Errorf("%s selects %v", name, spec.Selector)
		}
		for _, p := range spec.Ports {
			if ports[p.TargetPort] != fmt.Sprint(p.Port) {
				t.Errorf("%s leads %d to %s", name, p.Port, p.TargetPort)
			}
		}
	}
}

func TestDockerfile(t *testing.T) {
	project(t)
	known := strings.Fields("FROM WORKDIR COPY RUN USER EXPOSE ENTRYPOINT CMD")
	text := string(read(t, "Dockerfile"))
	var stages []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if !slices.Contains(known, words[0]) {
			t.Errorf("no instruction: %s", line)
		}
		if words[0] == "FROM" && len(words) == 4 {
			stages = append(stages, words[3])
		}
		if words[0] != "COPY" {
			continue
		}
		if from, ok := strings.CutPrefix(words[1], "--from="); ok {
			if from != "zgame" && !slices.Contains(stages, from) {
				t.Errorf("no stage and no context: %s", line)
			}
			continue
		}
		for _, path := range words[1 : len(words)-1] {
			if _, err := os.Stat(filepath.FromSlash(path)); err != nil {
				t.Error(err)
			}
		}
	}
	for _, want := range []string{"EXPOSE 7000 8080 9090\n", `ENTRYPOINT ["mygame"]`, `CMD ["run", "--config", "` + shown + `"]`, "COPY deploy/server.yaml " + shown + "\n", "/usr/local/bin/mygame\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	if mod := string(read(t, "go.mod")); !strings.Contains(text, "FROM golang:"+regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)[1]+" ") {
		t.Error("the image builds with another Go than go.mod says")
	}
	load(t, map[string]string{"ZGAME_GATE_AUTH_KIND": "dev"})
}
