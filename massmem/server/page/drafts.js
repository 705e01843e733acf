// What is written and not sent yet, text and files, kept in the browser until the service has it.

const NAME = "massmem";

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(NAME);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// Returns what `action` asks of the drafts; undefined where the browser stores nothing, as in some private windows.
async function use(mode, action) {
  try {
    const database = await open();
    const transaction = database.transaction(NAME, mode);
    const request = action(transaction.objectStore(NAME));
    await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    database.close();
    return request.result;
  } catch {
    return undefined;
  }
}

export const loadDraft = (key) => use("readonly", (drafts) => drafts.get(key));

// draft: {text, files, sending, queue, whom}; one without a question is removed. Or the key with which the browser comes in again.
export const saveDraft = (key, draft) => use("readwrite", (drafts) => (draft && (draft.type || draft.text || draft.files.length || draft.queue.length) ? drafts.put(draft, key) : drafts.delete(key)));

export const forgetDrafts = () => use("readwrite", (drafts) => drafts.clear());
