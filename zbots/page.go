package zbots

import (
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

// WriteHTML writes the report as a page of its own, with charts, which needs nothing else.
func (r *Report) WriteHTML(w io.Writer) error {
	get := func(of func(*Second) float64) []float64 {
		values := make([]float64, len(r.Seconds))
		for i := range r.Seconds {
			values[i] = of(&r.Seconds[i])
		}
		return values
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return page.Execute(w, map[string]any{
		"Report": r,
		"Charts": []chart{
			newChart("requests a second", line{"succeeded", get(func(s *Second) float64 { return float64(s.Count) })}, line{"failed", get(func(s *Second) float64 { return float64(s.Failed) })}),
			newChart("latency, ms", line{"p50", get(func(s *Second) float64 { return ms(s.Times.P50) })}, line{"p99", get(func(s *Second) float64 { return ms(s.Times.P99) })},
				line{"longest", get(func(s *Second) float64 { return ms(s.Times.Max) })}),
			newChart("bots online", line{"online", get(func(s *Second) float64 { return float64(s.Online) })}),
		},
	})
}

type line struct {
	Name   string
	values []float64
}

// chart is lines over the seconds of a run.
type chart struct {
	Title string
	Most  string // the top of the scale
	End   string // of the time
	Lines []drawn
}

type drawn struct {
	Name   string
	Class  string
	Points string
}

// The plot's size in units of its picture.
const (
	plotWidth  = 800
	plotHeight = 200
)

func newChart(title string, lines ...line) chart {
	most, count := 1.0, 0
	for _, l := range lines {
		count = max(count, len(l.values))
		for _, v := range l.values {
			most = max(most, v)
		}
	}
	c := chart{Title: title, Most: fmt.Sprintf("%.4g", most), End: fmt.Sprintf("%d s", count)}
	for i, l := range lines {
		var b strings.Builder
		for k, v := range l.values {
			fmt.Fprintf(&b, "%.1f,%.1f ", plotWidth*(float64(k)+0.5)/float64(count), plotHeight*(1-v/most))
		}
		c.Lines = append(c.Lines, drawn{l.Name, fmt.Sprint("l", i), b.String()})
	}
	return c
}

var page = template.Must(template.New("report").Funcs(template.FuncMap{"short": short}).Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Report.Script}}: {{.Report.Bots}} bots</title>
<style>
:root { color-scheme: light dark; --l0: #06c; --l1: #c33; --l2: #999 }
@media (prefers-color-scheme: dark) { :root { --l0: #6af; --l1: #f77; --l2: #888 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #8884 }
th:first-child, td:first-child { text-align: left }
figure { margin: 1.5rem 0 } svg { width: 100%; height: auto; border: 1px solid #8884 } text { font-size: 12px; fill: currentColor }
polyline { fill: none; stroke-width: 1.5 } .l0 { stroke: var(--l0) } .l1 { stroke: var(--l1) } .l2 { stroke: var(--l2) }
i { display: inline-block; width: 1rem; height: 0; border-top: 3px solid; vertical-align: middle } i.l0 { color: var(--l0) } i.l1 { color: var(--l1) } i.l2 { color: var(--l2) }
.bad { color: var(--l1); font-weight: bold }
</style>
{{with .Report}}<h1>{{.Script}}</h1>
<p>{{.Bots}} bots, {{short .Took}}, begun {{.Began.UTC.Format "2006-01-02 15:04:05 UTC"}}.</p>
<p{{if .Faulty}} class="bad"{{end}}>Numbered messages: {{.Came}} came; {{.Numbered.Lost}} lost, {{.Numbered.Doubled}} doubled, {{.Numbered.Swapped}} swapped.</p>
<p>{{.Online}} of {{.Bots}} bots came online. {{.Lost}} connections were lost, {{.Resumed}} sessions went on, {{.Anew}} began anew, {{.Gaps}} gaps were told.</p>
<table><tr><th>request<th>count<th>a second<th>p50<th>p90<th>p99<th>p99.9<th>longest<th>failed</tr>
{{range .Operations}}<tr><td>{{.Name}}<td>{{.Count}}<td>{{printf "%.1f" .PerSecond}}<td>{{short .Times.P50}}<td>{{short .Times.P90}}<td>{{short .Times.P99}}<td>{{short .Times.P999}}<td>{{short .Times.Max}}<td>{{range $why, $n := .Errors}}{{$n}} {{$why}} {{end}}</tr>
{{end}}</table>
{{range $why, $n := .Ended}}<p class="bad">{{$n}} bots ended by: {{$why}}</p>{{end}}{{end}}
{{range .Charts}}<figure><figcaption>{{.Title}}{{range .Lines}} &nbsp;<i class="{{.Class}}"></i> {{.Name}}{{end}}</figcaption>
<svg viewBox="-60 -10 880 240" role="img" aria-label="{{.Title}}"><text x="-6" y="8" text-anchor="end">{{.Most}}</text><text x="-6" y="200" text-anchor="end">0</text>
<text x="800" y="220" text-anchor="end">{{.End}}</text>{{range .Lines}}<polyline class="{{.Class}}" points="{{.Points}}"/>{{end}}</svg></figure>
{{end}}</html>
`))
