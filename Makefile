# Staff's and CI's commands; `make help` lists them. (What students get is student/Makefile.)

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
JOBS   ?= 2
WHO    ?= student
TIER   ?= auto
OUT    ?= build

export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help env demo verify prove prove-all test stubs handout lint format release score truth predict-plot port bench new-term clean

help:                   ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/installed: requirements.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Python 3.11 or newer is needed; $(PYTHON) is {v[0]}.{v[1]}: try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --requirement requirements.lock
	@touch $@

env: $(VENV)/installed  ## the environment, in .venv
	@command -v bwrap > /dev/null || echo "note: bubblewrap is not installed; hand-ins are shut in less strictly (Debian: apt-get install bubblewrap)"

demo: env               ## pack the staff solution as a hand-in, score it, show the table
	$(PY) handin.py --overlay staff:student:. --results staff/results/a1 --student staff --output $(OUT)/demo
	$(PY) grader/score.py "$$(ls -t $(OUT)/demo/*.tar.gz | head -n 1)" -o $(OUT)/demo/results.json --tier virtual

verify: env lint        ## all of the project's own tests
	$(PY) -m pytest -n $(JOBS) --dist worksteal -q -rs

prove: env              ## every wrong and every right solution, both suites, on its own exercise
	$(PY) -m grader.proof --jobs $(JOBS)

prove-all: env          ## the same on every exercise: nothing else may be disturbed (an hour)
	$(PY) -m grader.proof --all-exercises --jobs $(JOBS)

test: env               ## a suite as students see it: WHO=student|staff|FOLDER TIER=virtual|cuda C=3 E=2
	@$(PY) -m pytest grader/public -q -rN --no-header --tb=short --who "$(WHO)" --tier $(TIER) \
		--coding "$(C)" --experiment "$(E)"

stubs: env              ## make student/ stubs anew from staff/
	$(PY) staff/tools/stubs.py

handout: env            ## the handout and the model answers anew, with the results' figures
	$(PY) staff/handout/render.py

lint: env
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) staff/tools/stubs.py --check
	$(PY) staff/handout/render.py --check

format: env             ## put the sources into ruff's form
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

release: env            ## the students' repository: DIR=FOLDER [MESSAGE="what was corrected"]
	$(PY) staff/tools/release.py "$(DIR)" --message "$(MESSAGE)"

score: env              ## score one hand-in: HANDIN=FILE.tar.gz [OUT=build]
	$(PY) grader/score.py "$(HANDIN)" -o $(OUT)/results.json

truth: env              ## measure training steps on this GPU: OCCASION=monday GPU=nvidia-h200
	PYTHONPATH=staff:student:. $(PY) staff/truth/measure.py --occasion "$(OCCASION)" --out staff/truth/$(GPU)/occasions
	PYTHONPATH=staff:student:. $(PY) staff/truth/make_tables.py staff/truth/$(GPU)

predict-plot: env       ## predicted against measured steps: WHO=staff|student
	PYTHONPATH=$(if $(filter staff,$(WHO)),staff:)student:. $(PY) student/a1/predict_plot.py --results $(OUT)

port: env               ## steps to another GPU, and what still needs a person: GPU="NVIDIA B200"
	$(PY) staff/tools/port.py "$(GPU)"

bench: env              ## this model against transformers, on a GPU
	$(PY) staff/bench/model_speed.py

new-term: env           ## draw a new secret for the hidden suite: TERM=fall27
	$(PY) staff/tools/new_term.py "$(TERM)"

clean:
	rm -rf $(OUT) .pytest_cache .ruff_cache
